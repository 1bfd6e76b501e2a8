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
# hosts are synchronised by AWS; one that is proven to be off by more refuses work.
MAX_CLOCK_ERROR: Final = timedelta(milliseconds=500)
# How much an offset that was measured changes in a second: NTP slews a clock by at most 500
# parts in a million, and one that nobody corrects runs off by 200.
CLOCK_DRIFT: Final = 0.001
CLOCK_ANSWERS: Final = 3  # that agree, before they prove anything
# Bounds that are further apart tell nothing: the clocks jumped, or the host was frozen, since.
CLOCK_KNOWN_WITHIN: Final = timedelta(seconds=5)
CLOCK_MEASURED_EVERY: Final = timedelta(seconds=30)  # by requests of its own, where it has to be
CLOCK_TOLD_EVERY: Final = timedelta(seconds=60)  # one value of the metric for each process

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
# One that only waits and was received so often is replaced by another before.
RENEWED_AFTER_RECEIVES: Final = 50

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
# With more messages waiting than this, and than half a minute brings, an unclaimed row's message is
# most likely among them.
BACKED_UP_MESSAGES: Final = 10
# After this long it may be sent again all the same: a quarter of them each time it has doubled.
HELD_BACK: Final = timedelta(hours=1)
HELD_BACK_PARTS: Final = 4
# Where what has waited this long in its lane may be promoted to another. The sweep sees it no
# sooner: a bucket's minute, SWEEP_AFTER and the tick's minute. Later than a day is not aging.
PROMOTE_AFTER_RANGE: Final = (timedelta(seconds=150), timedelta(days=1))
# A look comes so long after the beginning of its minute at most: for the minute, SWEEP_AFTER and
# the tick's. What will be old by the next one is promoted by a message that is delayed until then.
PROMOTE_AHEAD: Final = timedelta(seconds=150)
# Nothing is promoted into a lane in which as many wait already: those are its own.
PROMOTED_INTO_MESSAGES: Final = 100

DEFAULT_MAX_ATTEMPTS: Final = 5
MAX_ATTEMPTS: Final = 100
MAX_BACKOFF: Final = timedelta(days=1)
RETRY_MAX_NAMES: Final = 20  # of errors, in one list of a policy; they lie in a one-off's row
RETRY_NAME_MAX_CHARS: Final = 128
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
MAX_TIMEOUT: Final = timedelta(seconds=840)  # LAMBDA_MAX_TIMEOUT less a minute to finish in
# Of a try that is deferred. A worker's lease is the shortest that the sweep and the queue are
# made for; beyond a week a callback token has been in too many hands.
DEFAULT_HEARTBEAT: Final = timedelta(minutes=5)
HEARTBEAT_RANGE: Final = (timedelta(seconds=30), timedelta(hours=12))
DEFAULT_HARD_LIMIT: Final = timedelta(days=1)
HARD_LIMIT_RANGE: Final = (timedelta(seconds=30), timedelta(days=7))
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
# Of a message to a named target, for what stands beside the payload: ids, instants, names.
TARGET_BESIDE_BYTES: Final = 2048
ERROR_MESSAGE_MAX_CHARS: Final = 500
HISTORY_MAX_ATTEMPTS: Final = 20
NAME_MAX_CHARS: Final = 128
EXECUTION_KEPT: Final = timedelta(days=7)  # after its end, or its time where that is later
# Past its time. A pointer that goes before dispatch came to it is a retry or a check lost for
# good (P7), so it outlasts any outage; there are few of them.
POINTER_KEPT: Final = timedelta(days=30)
MESSAGE_MAX_BYTES: Final = 300  # ids and instants only; ten of them are one request to SQS
LAYOUT_FRESH: Final = timedelta(seconds=60)  # how long a host goes by the layouts that it read
# A new layout begins at the first minute this far ahead: by then everybody has read of it, and
# nobody who had not can have dispatched past its beginning.
LAYOUT_AHEAD: Final = LAYOUT_FRESH + LOOK_AHEAD + 2 * MARGIN
# Partition work that was done asks for itself again after this long: longer than from one tick
# to the next, shorter than the look-ahead, so that two in a row may be lost.
REARM_AFTER: Final = timedelta(seconds=90)
# This far behind, dispatch serves what is due now first, and the backlog beside it. A layout
# begins up to two minutes before its first visit.
BACKLOG_AFTER: Final = timedelta(seconds=120)
# After an outage of hours most buckets are empty. How far a visit has come is written down this
# often all the same: else where calls keep failing each visit would begin at the beginning.
COMMIT_PAGES: Final = 50
# Messages a second that a backlog comes to in the whole stack: what a default stack can start.
DRAIN_PER_SECOND: Final = 1000.0
DRAIN_RANGE: Final = (1.0, 1e6)
DRAIN_PAGE: Final = timedelta(seconds=1)  # a page of a backlog comes to this much of its rate
# While a backlog drains, what is due now is looked for this often.
LOOK_AGAIN: Final = timedelta(seconds=30)
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
# A job's ledger is watched no more often than this, nor before so many of its slots are over;
# but after a day if there were any, and after a week if there were none. So a job pays at most 24
# write units a day for it: one in eight of what its runs cost if there are four or more a day.
WATCH_EVERY: Final = timedelta(hours=1)
WATCH_SLOTS: Final = 4
WATCH_AT_LEAST: Final = timedelta(days=1)
WATCH_SELDOM: Final = timedelta(days=7)
# No host that puts a job and its first watch outlives this (LAMBDA_MAX_TIMEOUT_S): the watch
# comes first, and finds the job, or there will never be one.
WATCH_FIRST: Final = timedelta(minutes=15)
WATCH_PARTS: Final = 8  # of a ledger, told by one visit; the rest soon after
WATCH_AGAIN: Final = timedelta(minutes=5)
# Planned by another release of the zone database, a slot lies this far from where it is, or less.
ZONES_MOVE: Final = timedelta(hours=2)
LEDGER_BY_DEFAULT: Final = timedelta(days=1)
LEDGER_MAX_RANGE: Final = timedelta(days=366)
RECOVERY_STEPS: Final = 5000  # decisions about one job's overdue slots; beyond: `at least`
FORECAST_MAX_RANGE: Final = timedelta(days=1)
FORECAST_BY_DEFAULT: Final = timedelta(hours=1)
FORECAST_SLOTS: Final = 50_000  # counted by one call, about a second of its time
# What a handler is taken to need where a lane's capacity is derived from its concurrency.
FORECAST_HANDLER: Final = timedelta(milliseconds=500)
# What a lane on demand starts from idle: five batches of ten, which are done in half a second.
FORECAST_PER_SECOND: Final = 100.0
FORECAST_MOST_PER_SECOND: Final = 1e6
# A warning at create reads this many shards of a minute at most, as many as it takes for what
# makes an execution late to come to SAMPLE_LEAST rows, and of each this many rows: 17 read units
# with rows of 700 bytes.
SAMPLE_SHARDS: Final = 4
SAMPLE_LEAST: Final = 8
SAMPLE_ROWS: Final = 200
# Of one request: then none is asked about any more, and what was not told is not known.
SAMPLES: Final = 10
SAMPLED_WITHIN: Final = timedelta(milliseconds=500)
# A call that samples is given up after this, to connect and to answer, and not repeated.
SAMPLE_PATIENCE: Final = timedelta(milliseconds=250)
# Lateness to expect is told in these steps: it is made of other owners' load.
LATENESS_STEPS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 86_400)
)
ON_TIME: Final = timedelta(seconds=2)  # the promise: 99 of 100 start within it
RECENT_EXECUTIONS: Final = 10  # shown with a job
# After a restore the sweep begins this long before it, unless it is told otherwise: further back
# than it lags while nobody is alarmed.
RESTORED_SWEEP_BACK: Final = timedelta(hours=1)
# Tables are restored each by itself, to the second: a job or a key written this close to that
# instant, or later, may be in one of them and not in the other.
RESTORED_APART: Final = timedelta(seconds=60)
# A worker that does not know an execution's task, or the version that it was made for, parks it.
# It is looked at again after as long as it has been parked, within these.
PARKED_LOOKS: Final = (timedelta(seconds=30), timedelta(minutes=15))
# For so long that is a rolling deploy's usual course, and alarms nobody.
PARKED_IN_A_DEPLOY: Final = timedelta(minutes=10)
# Then it ends: a deploy may take a while, and be found out on a Monday.
PARKED_FOR: Final = timedelta(days=7)
PARKED_FOR_RANGE: Final = (timedelta(minutes=1), timedelta(days=30))
MAX_TASK_VERSION: Final = 1_000_000
# A notice that could not be given is tried again after half of what has passed since, within
# these; until the row is gone (EXECUTION_KEPT).
NOTICE_AGAIN: Final = (CHECK_SCHEDULED_AGAIN, timedelta(days=1))

SQS_MAX_DELAY_S: Final = 900  # SendMessage DelaySeconds, an integer; SQS developer guide
SQS_MESSAGE_MAX_BYTES: Final = 1024 * 1024  # SendMessage, with its attributes; API reference
SQS_BATCH: Final = 10  # entries per batch request; SQS developer guide
SQS_MAX_VISIBILITY_S: Final = 43_200  # ChangeMessageVisibility; SQS developer guide
DYNAMODB_WRITE_UNIT_BYTES: Final = 1024  # DynamoDB developer guide, read/write capacity
DYNAMODB_READ_UNIT_BYTES: Final = 4096  # strongly consistent; half for eventual
DYNAMODB_TRANSACT_ITEMS: Final = 100
DYNAMODB_BATCH_GET: Final = 100
LAMBDA_MAX_TIMEOUT_S: Final = 900  # Lambda quotas
LAMBDA_REQUEST_MAX_BYTES: Final = 6_000_000  # Invoke, API reference: 6 MB
LAMBDA_EVENT_MAX_BYTES: Final = 1_000_000  # the same, asynchronous: 1 MB
SNS_MESSAGE_MAX_BYTES: Final = 256 * 1024  # Publish, unless the topic's MaximumMessageSize is more
EVENTBRIDGE_ENTRY_MAX_BYTES: Final = 1_000_000  # PutEvents, API reference: less than 1 MB
STEPFUNCTIONS_INPUT_MAX_BYTES: Final = 262_144  # StartExecution, API reference

# What handlers write down (docs/decisions/0026). A checkpoint is an item of its own.
CHECKPOINT_MAX_BYTES: Final = 32 * 1024  # of JSON, 32 write units and as many for the transaction
# From its writing: the next try is a day away at most (MAX_BACKOFF), or an outage.
CHECKPOINT_KEPT: Final = timedelta(days=30)
LEDGER_KEY_MAX_CHARS: Final = 255
LEDGER_RESULT_MAX_BYTES: Final = RESULT_MAX_BYTES
# As long as anybody may ask for it: through the longest retries of an execution
# (MAX_ATTEMPTS times MAX_BACKOFF, and EXECUTION_KEPT), and those of its replay.
LEDGER_KEPT: Final = timedelta(days=366)
COMPLETION_MAX_WRITES: Final = DYNAMODB_TRANSACT_ITEMS - 1  # one is the execution's own
# Of JSON. DynamoDB takes 4 MB; but what isolated calls send their worker, ten hold at a time.
COMPLETION_MAX_BYTES: Final = 1024 * 1024

# Limits of what runs at once (docs/decisions/0028). A place is some 45 bytes of its limit's one
# item, of which a start and an end write all: 1,000 are 44 write units each.
LIMIT_MAX: Final = 1000
LIMITS_MAX: Final = 200  # in all; the longest names of as many owners are half an item
LIMITS_FRESH: Final = timedelta(seconds=10)  # how long a host goes by the limits that it read
# What waits for a place is woken when one is free; that it looks for itself is for lost messages.
PERMIT_POLL_FIRST: Final = timedelta(seconds=5)
PERMIT_POLL_MOST: Final = timedelta(seconds=60)
# One that waits and was not claimed for so long has no message any more.
PERMIT_POLLED_WITHIN: Final = timedelta(minutes=3)
PERMITS_LOOKED_AT: Final = 50  # rows of holders at once, of those whose time is over
PERMIT_WAITERS_WOKEN: Final = 100  # by one change of a limit; the others look for themselves
PERMIT_WAITER_KEPT: Final = timedelta(days=1)  # it says that it waits at each look
