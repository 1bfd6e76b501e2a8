"""Names of keys, attributes and indexes: declared by `infra`, used by the stores.

No boto3 here: the index that the table declares and the index that the adapter queries are
one constant.
"""

from typing import Final

# Executions: the due-bucket table. Also holds payloads over the inline size and the pointer
# rows of far retries and checks.
PARTITION_KEY: Final = "pk"
SORT_KEY: Final = "sk"
TTL: Final = "expires_at"

# Sparse index keys on the executions table; the indexes sort by the table's own sort key,
# so that an update of a row never moves it inside an index.
OWNER_KEY: Final = "own"
BY_OWNER: Final = "by_owner"
# The second holds executions that need attention, by owner; and, of owners with a quota, those
# that are queued, by owner and size of payload, so that they can be counted.
ATTENTION_KEY: Final = "att"
NEEDS_ATTENTION: Final = "needs_attention"
# Of executions that no slot of their job's schedule has: run by hand, backfilled, replayed.
JOB_KEY: Final = "job"
BY_JOB: Final = "by_job"

# Jobs: definitions of recurring jobs, and idempotency keys. `by_owner` sorts by the
# table's partition key, the job's id, which sorts by time of creation.
JOBS_OWNER_KEY: Final = "own"
JOBS_BY_OWNER: Final = "by_owner"
JOBS_BY_OWNER_SORT: Final = PARTITION_KEY

# What the partition keys of all limits begin with, in the control table (`core/buckets.py`).
PERMITS: Final = "permit#"

TICK: Final = '{"kind":"tick"}'
"""What the scheduler is told at a tick, called or by its queue."""
