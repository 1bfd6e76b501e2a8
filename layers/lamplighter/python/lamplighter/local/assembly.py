"""What a synth leaves behind, read: stacks in the order to create them, and their assets."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, NotRequired, TypedDict

STACK: Final = "aws:cloudformation:stack"
ASSETS: Final = "cdk:asset-manifest"


class _Properties(TypedDict, total=False):
    file: str
    templateFile: str
    stackName: str
    stackTemplateAssetObjectUrl: str


class _Artifact(TypedDict):
    type: str
    properties: _Properties
    dependencies: NotRequired[list[str]]


class _Source(TypedDict):
    path: str
    packaging: str


class _Place(TypedDict):
    bucketName: str
    objectKey: str


class _File(TypedDict):
    source: _Source
    destinations: dict[str, _Place]


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file or a folder, and where the templates expect it."""

    source: Path
    zipped: bool
    bucket: str
    key: str

    def content(self) -> bytes:
        return _zip(self.source) if self.zipped else self.source.read_bytes()


@dataclass(frozen=True, kw_only=True)
class Template:
    """A stack to be, and its template's place among the assets."""

    stack: str
    bucket: str
    key: str
    resources: frozenset[str]
    """Logical ids."""


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A folder that `app.synth()` wrote, for one account and region."""

    folder: Path
    account: str
    region: str

    def templates(self) -> Iterator[Template]:
        """Each after those that it depends on."""
        artifacts = self._artifacts()
        order = TopologicalSorter(
            {name: artifact.get("dependencies", ()) for name, artifact in artifacts.items()}
        )
        for name in order.static_order():
            if artifacts[name]["type"] == STACK:
                yield self._template(name, artifacts[name]["properties"])

    def assets(self) -> Iterator[Asset]:
        for artifact in self._artifacts().values():
            if artifact["type"] == ASSETS:
                for file in self._files(artifact["properties"]["file"]):
                    yield from self._places(file)

    def _places(self, file: _File) -> Iterator[Asset]:
        for place in file["destinations"].values():
            yield Asset(
                source=self.folder / file["source"]["path"],
                zipped=file["source"]["packaging"] == "zip",
                bucket=self._resolve(place["bucketName"]),
                key=place["objectKey"],
            )

    def _template(self, name: str, properties: _Properties) -> Template:
        place = self._resolve(properties["stackTemplateAssetObjectUrl"])
        bucket, _, key = place.removeprefix("s3://").partition("/")
        template = json.loads((self.folder / properties["templateFile"]).read_text())
        return Template(
            stack=properties.get("stackName", name),
            bucket=bucket,
            key=key,
            resources=frozenset(template["Resources"]),
        )

    def _artifacts(self) -> Mapping[str, _Artifact]:
        manifest = json.loads((self.folder / "manifest.json").read_text())
        artifacts: Mapping[str, _Artifact] = manifest["artifacts"]
        return artifacts

    def _files(self, manifest: str) -> Iterator[_File]:
        files: Mapping[str, _File] = json.loads((self.folder / manifest).read_text())["files"]
        yield from files.values()

    def _resolve(self, text: str) -> str:
        """A stack without an environment leaves the place open until it is deployed."""
        return text.replace("${AWS::AccountId}", self.account).replace(
            "${AWS::Region}", self.region
        )


def _zip(folder: Path) -> bytes:
    """Stored, not deflated: it never leaves this machine, and is unpacked for every process."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return packed.getvalue()
