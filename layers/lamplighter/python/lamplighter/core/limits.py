"""Every number the system is built around: value, unit in the name, source in a comment.

Names that start with a service's name are that service's limits; the rest are our choices
(`docs/decisions/`), each with the reason beside it.
"""

from datetime import timedelta
from typing import Final

# A tick may be 60 s late and one may be missing: two ticks are then up to 119 s apart
# (EventBridge Scheduler, 60 s precision). 240 s keeps one lost tick invisible.
LOOK_AHEAD: Final = timedelta(seconds=240)
# What lies this close behind the line is sent by whoever put it. At least twice the clock error.
MARGIN: Final = timedelta(seconds=15)
# The bound on every host's clock error that the grace and the margin are made for. Lambda's
# hosts are synchronised by AWS; it is not measured here yet.
MAX_CLOCK_ERROR: Final = timedelta(milliseconds=500)

PARTITION_LEASE: Final = timedelta(seconds=30)
WORKER_LEASE: Final = timedelta(seconds=30)
BEAT_EVERY: Final = timedelta(seconds=10)
# A take-over waits this long past the lease; the holder stops this long before it.
TAKE_OVER_GRACE: Final = timedelta(seconds=5)
CRASH_LIMIT: Final = 3
UNDELIVERABLE_LIMIT: Final = 3
# But not before a day: workers that cannot even claim say nothing of what they should run.
UNDELIVERABLE_AFTER: Final = timedelta(days=1)
# A message is received again every 30 s while its worker cannot claim: a table or a deployment
# may be broken for most of an hour before anything lands in a dead-letter queue. SQS: 1-1,000.
LANE_MAX_RECEIVES: Final = 100

DEFAULT_SHARDS: Final = 16
MAX_SHARDS: Final = 4096  # twelve bits of an execution id
DEFAULT_PARTITIONS: Final = 4
PAGE_ROWS: Final = 500  # rows decided under one intent; a redo repeats at most this many
ROUND_UP_WITHIN: Final = timedelta(milliseconds=150)
# The longest a worker holds a message before its claim: SQS delays are whole seconds.
MAX_HOLD: Final = timedelta(seconds=1)
MISFIRE_THRESHOLD: Final = timedelta(seconds=60)

# Past a bucket's end. With the tick's minute, what was never sent is sent at most 150 s late.
SWEEP_AFTER: Final = timedelta(seconds=30)
CHECK_SCHEDULED_AGAIN: Final = timedelta(minutes=5)
CHECK_RUNNING_AFTER_LEASE: Final = timedelta(seconds=30)
CHECK_RUNNING_AT_LEAST: Final = timedelta(minutes=10)
# With more messages waiting than this, an unclaimed row's message is most likely among them.
BACKED_UP_MESSAGES: Final = 1000
# After this long it is sent again all the same.
HELD_BACK: Final = timedelta(hours=1)

DEFAULT_MAX_ATTEMPTS: Final = 5
MAX_ATTEMPTS: Final = 100
MAX_BACKOFF: Final = timedelta(days=1)
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
MAX_TIMEOUT: Final = timedelta(seconds=840)  # LAMBDA_MAX_TIMEOUT less a minute to finish in
MIN_INTERVAL: Final = timedelta(seconds=60)
MAX_HORIZON: Final = timedelta(days=3653)
SCHEDULE_TEXT_MAX_CHARS: Final = 256  # longer text is refused unread
# The first and last year of an expression; EventBridge Scheduler's cron reference. Nothing is
# computed outside them, so every search ends.
SCHEDULE_FIRST_YEAR: Final = 1970
SCHEDULE_LAST_YEAR: Final = 2199
MAX_INTERVAL: Final = timedelta(days=3660)  # of a rate: ten years
MAX_OCCURRENCES: Final = 1000  # `max_occurrences`: finding the last one counts them all
MAX_EXCLUSIONS: Final = 50
MAX_FLEXIBLE_WINDOW: Final = timedelta(days=1)  # EventBridge Scheduler: 1–1,440 minutes
PREVIEW_MAX_OCCURRENCES: Final = 1000
PAYLOAD_INLINE_BYTES: Final = 512  # keeps the row under one write unit
PAYLOAD_MAX_BYTES: Final = 64 * 1024
RESULT_MAX_BYTES: Final = 16 * 1024
ERROR_MESSAGE_MAX_CHARS: Final = 500
HISTORY_MAX_ATTEMPTS: Final = 20
NAME_MAX_CHARS: Final = 128
EXECUTION_KEPT: Final = timedelta(days=7)
# Past its time. A pointer that goes before dispatch came to it is a retry or a check lost for
# good (P7), so it outlasts any outage; there are few of them.
POINTER_KEPT: Final = timedelta(days=30)
MESSAGE_MAX_BYTES: Final = 300  # ids and instants only; ten of them are one request to SQS
LAYOUT_FRESH: Final = timedelta(seconds=60)  # a change takes effect at a minute ahead of that
# A payload of its own outlives its row by far: late is never never.
PAYLOAD_KEPT: Final = timedelta(days=366)
IDEMPOTENCY_KEPT: Final = timedelta(days=7)
IDEMPOTENCY_KEY_MAX_CHARS: Final = 255
OWNER_MAX_CHARS: Final = 255  # OpenID Connect Core 1.0, section 2: the longest `sub`
BODY_MAX_BYTES: Final = 256 * 1024  # a payload at its limit, most of it written as \u escapes
BATCH_MAX_JOBS: Final = 100  # jobs of one request
BATCH_MAX_BYTES: Final = 4 * 1024 * 1024  # Lambda takes 6 MB, in which each quote counts twice
BATCH_PATIENCE: Final = timedelta(seconds=10)  # then no further job is begun: an API has 15 s
JSON_MAX_DEPTH: Final = 64  # CPython's parser gives up at about a thousand
QUERY_MAX_FIELDS: Final = 50
FAULTS_NAMED: Final = 20  # of one request
LIST_ITEMS: Final = 50
LIST_MAX_ITEMS: Final = 100  # of the largest results and errors: 5.6 MB, and Lambda answers 6 MB
LIST_MAX_READS: Final = 1000  # rows that one call looks at, however few of them pass its filter
RECENT_EXECUTIONS: Final = 10  # shown with a job

SQS_MAX_DELAY_S: Final = 900  # SendMessage DelaySeconds, an integer; SQS developer guide
SQS_BATCH: Final = 10  # entries per batch request; SQS developer guide
SQS_MAX_VISIBILITY_S: Final = 43_200  # ChangeMessageVisibility; SQS developer guide
DYNAMODB_WRITE_UNIT_BYTES: Final = 1024  # DynamoDB developer guide, read/write capacity
DYNAMODB_READ_UNIT_BYTES: Final = 4096  # strongly consistent; half for eventual
DYNAMODB_TRANSACT_ITEMS: Final = 100
DYNAMODB_BATCH_GET: Final = 100
LAMBDA_MAX_TIMEOUT_S: Final = 900  # Lambda quotas
