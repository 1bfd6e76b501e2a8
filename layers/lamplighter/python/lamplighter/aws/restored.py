"""The jobs table as its operator sees it: scanned, as no function of ours may."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lamplighter.aws import items, schema
from lamplighter.aws.failures import translated
from lamplighter.core.buckets import JOB_SORT_KEY, KEY_SORT_KEY, idempotency_key, to_ms
from lamplighter.core.model import Job
from lamplighter.ports import KeyRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# A version without a time of its own is the first: as old as its job.
_CHANGED: Final = (
    "(#sk = :job AND (#effective >= :since OR (attribute_not_exists(#effective) AND "
    "#created >= :since))) OR (#sk = :key AND #created >= :since)"
)
_NAMES: Final = {
    "#sk": schema.SORT_KEY,
    "#effective": items.EFFECTIVE_FROM,
    "#created": items.CREATED_AT,
}


class DynamoRestored:
    """`failover.Restored` on the jobs table. A scan reads all of it once, to find a little."""

    def __init__(self, client: "DynamoDBClient", *, table: str) -> None:
        self._client = client
        self._table = table

    def changed_since(self, instant: datetime) -> Iterator[Job | KeyRecord]:
        values = {":job": JOB_SORT_KEY, ":key": KEY_SORT_KEY, ":since": to_ms(instant)}
        with translated("Scan"):
            for page in self._client.get_paginator("scan").paginate(
                TableName=self._table,
                ConsistentRead=True,
                FilterExpression=_CHANGED,
                ExpressionAttributeNames=_NAMES,
                ExpressionAttributeValues=items.marshal(values),
            ):
                yield from _read(page["Items"])

    def forget(self, key: KeyRecord) -> None:
        place = idempotency_key(key.owner, key.key)
        with translated("DeleteItem"):
            self._client.delete_item(
                TableName=self._table, Key=items.marshal(items.key_values(place))
            )


def _read(page: Sequence[Any]) -> Iterator[Job | KeyRecord]:
    for values in map(items.unmarshal, page):
        if values[schema.SORT_KEY] == JOB_SORT_KEY:
            yield items.job_from(values)
        else:
            yield items.key_record_from(values)
