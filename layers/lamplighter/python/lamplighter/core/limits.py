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

# Executions before a claimed one that it looks at in one claim: half a second of its lease.
CHAIN_READS: Final = 100
# Slots that are looked at for a job's armed occurrence: of a minutely job, three days' outage.
CHAIN_SLOTS: Final = 5000
CHAIN_JOINS: Final = 90  # rows that join a chain in one transaction, with what ties them to it

DEFAULT_SHARDS: Final = 16
MAX_SHARDS: Final = 4096  # twelve bits of an execution id
DEFAULT_PARTITIONS: Final = 4
PAGE_ROWS: Final = 500  # rows decided under one intent; a redo repeats at most this many
ROUND_UP_WITHIN: Final = timedelta(milliseconds=150)
# The longest a worker holds a message before its claim: SQS delays are whole seconds.
MAX_HOLD: Final = timedelta(seconds=1)
MISFIRE_THRESHOLD: Final = timedelta(seconds=60)
MISFIRE_THRESHOLD_RANGE: Final = (timedelta(seconds=1), timedelta(days=1))
CATCHUP_WINDOW: Final = timedelta(days=1)
CATCHUP_WINDOW_RANGE: Final = (timedelta(minutes=1), timedelta(days=366))
CATCHUP_MAX: Final = 100
CATCHUP_MAX_LIMIT: Final = 1000
CATCHUP_SPREAD: Final = timedelta(seconds=60)
# A message's delay carries a start to its second: well within SQS_MAX_DELAY_S.
CATCHUP_SPREAD_RANGE: Final = (timedelta(0), timedelta(seconds=600))
# Missed occurrences that are not run are counted up to here; their bounds are always exact.
PASSED_OVER_COUNTED: Final = 1000
DEADLINE_RANGE: Final = (timedelta(seconds=1), timedelta(days=366))

# Past a bucket's end. With the tick's minute, what was never sent is sent at most 150 s late.
SWEEP_AFTER: Final = timedelta(seconds=30)
# The ledger calls an occurrence missed this long past its time: the 150 s, and half a minute.
LEDGER_LATE: Final = timedelta(seconds=180)
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
RETRY_MAX_NAMES: Final = 20  # of errors, in one list of a policy; they lie in a one-off's row
RETRY_NAME_MAX_CHARS: Final = 128
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
MAX_TIMEOUT: Final = timedelta(seconds=840)  # LAMBDA_MAX_TIMEOUT less a minute to finish in
MIN_INTERVAL: Final = timedelta(seconds=60)
SHORTEST_INTERVAL: Final = timedelta(seconds=1)  # for owners whose quota says so
MAX_HORIZON: Final = timedelta(days=3653)
SCHEDULE_TEXT_MAX_CHARS: Final = 256  # longer text is refused unread
# The first and last year of an expression; EventBridge Scheduler's cron reference. Nothing is
# computed outside them, so every search ends.
SCHEDULE_FIRST_YEAR: Final = 1970
SCHEDULE_LAST_YEAR: Final = 2199
MAX_INTERVAL: Final = timedelta(days=3660)  # of a rate: ten years
# `max_occurrences`: they are counted once, when a job is created or edited; the worst take 3 s.
MAX_OCCURRENCES: Final = 10_000
MAX_COUNTING_MISSES: Final = 5000  # intervals of a rate that `except` takes away while they are
MAX_EXCLUSIONS: Final = 50
MAX_FLEXIBLE_WINDOW: Final = timedelta(days=1)  # EventBridge Scheduler: 1–1,440 minutes
PREVIEW_MAX_OCCURRENCES: Final = 1000
BACKFILL_SLOTS: Final = 100  # of one request, unless it names another number
BACKFILL_MAX_SLOTS: Final = 1000  # written within the 15 s that an API has
BACKFILL_MAX_READS: Final = 2000  # rows of the schedule that a request looks for
BACKFILL_MAX_SPREAD: Final = timedelta(days=1)
# A repeated request makes what a crash left out, until then: long before a row that ended is gone
# (EXECUTION_KEPT), which would be made, and run, once more.
BACKFILL_FINISHED_WITHIN: Final = timedelta(days=1)
PAYLOAD_INLINE_BYTES: Final = 512  # keeps the row under one write unit
PAYLOAD_MAX_BYTES: Final = 64 * 1024
# A payload by reference. A worker of 512 MB runs ten jobs at once, and what Python makes of
# JSON takes about five times the bytes of its text: ten of the largest just fit in there.
PAYLOAD_REF_MAX_BYTES: Final = 5 * 1024 * 1024
PAYLOAD_REF_KEY_MAX_CHARS: Final = 256  # an object's key, its owner's prefix included
PAYLOAD_REF_VERSION_MAX_CHARS: Final = 1024  # Amazon S3 user guide, versioning: 1,024 bytes
UPLOAD_FOR: Final = timedelta(minutes=15)  # how long a place to upload to is open
# Long enough for 5 MiB at 3 Mbit/s; and a lease of 30 s is then held still.
PAYLOAD_FETCHED_WITHIN: Final = timedelta(seconds=15)
RESULT_MAX_BYTES: Final = 16 * 1024
TARGET_URL_MAX_CHARS: Final = 2048  # they lie in the row of a one-off: two write units, at most
TARGET_MAX_HEADERS: Final = 20
TARGET_HEADERS_MAX_BYTES: Final = 2048  # names and values
ANSWER_READ_BYTES: Final = 64 * 1024  # of a target's answer; then the connection is closed
ANSWER_KEPT_BYTES: Final = 4096  # the worst of it takes three bytes each in JSON: a result holds it
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
BULK_MAX_EXECUTIONS: Final = 100  # cancelled or replayed by one request
JSON_MAX_DEPTH: Final = 64  # CPython's parser gives up at about a thousand
QUERY_MAX_FIELDS: Final = 50
QUERY_MAX_CHARS: Final = 10_240  # API Gateway: of the request line and the headers together
HEADERS_MAX_BYTES: Final = 10_240  # names and values; API Gateway's quota for HTTP APIs
# Of JSON. A function's environment holds 4 KB, and its queues' URLs are in it.
QUOTAS_MAX_BYTES: Final = 2048
# The share of a burst that may be used beyond it: what hosts hold of tokens that they took.
LEASED_SHARE: Final = 0.1
# What was counted as queued earlier than this is in the index by now, or never will be.
RECOUNT_AFTER: Final = timedelta(seconds=3)
# A count is marked no more often, and only over half of a quota.
MARK_EVERY: Final = timedelta(seconds=10)
# After a refusal for what does not end by itself: nobody knows when.
QUOTA_RETRY_AFTER: Final = timedelta(seconds=60)
FAULTS_NAMED: Final = 20  # of one request
LIST_ITEMS: Final = 50
LIST_MAX_ITEMS: Final = 100  # of the largest results and errors: 5.6 MB, and Lambda answers 6 MB
LIST_MAX_READS: Final = 1000  # rows that one call looks at, however few of them pass its filter
LEDGER_SLOTS: Final = 1000  # that one call accounts for, each at most one strong read
LEDGER_BY_DEFAULT: Final = timedelta(days=1)
LEDGER_MAX_RANGE: Final = timedelta(days=366)
RECOVERY_STEPS: Final = 5000  # decisions about one job's overdue slots; beyond: `at least`
FORECAST_MAX_RANGE: Final = timedelta(days=1)
FORECAST_BY_DEFAULT: Final = timedelta(hours=1)
FORECAST_SLOTS: Final = 50_000  # counted by one call, about a second of its time
# What a lane on demand starts from idle: five batches of ten, which are done in half a second.
FORECAST_PER_SECOND: Final = 100.0
FORECAST_MOST_PER_SECOND: Final = 1e6
ON_TIME: Final = timedelta(seconds=2)  # the promise: 99 of 100 start within it
RECENT_EXECUTIONS: Final = 10  # shown with a job

SQS_MAX_DELAY_S: Final = 900  # SendMessage DelaySeconds, an integer; SQS developer guide
SQS_BATCH: Final = 10  # entries per batch request; SQS developer guide
SQS_MAX_VISIBILITY_S: Final = 43_200  # ChangeMessageVisibility; SQS developer guide
DYNAMODB_WRITE_UNIT_BYTES: Final = 1024  # DynamoDB developer guide, read/write capacity
DYNAMODB_READ_UNIT_BYTES: Final = 4096  # strongly consistent; half for eventual
DYNAMODB_TRANSACT_ITEMS: Final = 100
DYNAMODB_BATCH_GET: Final = 100
LAMBDA_MAX_TIMEOUT_S: Final = 900  # Lambda quotas
