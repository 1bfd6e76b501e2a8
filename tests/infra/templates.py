"""Reading what a synth wrote by the names that people gave, not by logical ids."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Properties = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Template:
    """One stack. A resource's name is its construct's path below `JobScheduler` or `Tables`."""

    folder: Path
    stack: str

    @cached_property
    def body(self) -> Mapping[str, Any]:
        return self._read("template")

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Logical id → name."""
        return {
            entry["data"]: "/".join(path.removesuffix("/Resource").split("/")[3:])
            for path, entries in self._read("metadata").items()
            for entry in entries
            if entry["type"] == "aws:cdk:logicalId"
        }

    def resources(self, type_: str) -> Mapping[str, Mapping[str, Any]]:
        """Name → resource; a test that looks at none of a kind looks at the wrong thing."""
        found = {
            self.names[logical_id]: resource
            for logical_id, resource in self.body["Resources"].items()
            if resource["Type"] == type_
        }
        assert found, f"{self.stack} has no {type_}"
        return found

    def properties(self, type_: str) -> Mapping[str, Properties]:
        return {name: found["Properties"] for name, found in self.resources(type_).items()}

    def _read(self, kind: str) -> Mapping[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / f"{self.stack}.{kind}.json").read_text())
        return read


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The folder that a synth wrote: two templates and their assets."""

    folder: Path
    stage: str

    @cached_property
    def data(self) -> Template:
        return Template(folder=self.folder, stack=f"lamplighter-{self.stage}-data")

    @cached_property
    def scheduler(self) -> Template:
        return Template(folder=self.folder, stack=f"lamplighter-{self.stage}")

    def named(self, reference: object) -> str:
        """What a reference, an attribute, or an import from the data stack points to."""
        match reference:
            case {"Ref": str(logical_id)} | {"Fn::GetAtt": [str(logical_id), _]}:
                return self.scheduler.names[logical_id]
            case {"Fn::ImportValue": str(export)}:
                return self.data.names[self._exporter(export)]
            case {"Fn::Join": ["", ["arn:", *_, str(resource)]]}:
                return resource.removeprefix(":")
            case {"Fn::Join": ["", [part, str(suffix)]]}:
                return f"{self.named(part)}{suffix}"
            case other:
                raise AssertionError(f"not a reference to one resource: {other!r}")

    def asset(self, content: Properties) -> Path:
        """The staged folder of a function's or layer's code."""
        return self.folder / f"asset.{content['S3Key'].removesuffix('.zip')}"

    def environment(
        self, function: str, places: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """A function's variables as deployed; `places` says what each name refers to."""
        properties = self.scheduler.properties("AWS::Lambda::Function")[function]
        variables = properties["Environment"]["Variables"]
        return {name: self._filled_in(value, places) for name, value in variables.items()}

    def _filled_in(self, value: object, places: Mapping[str, str] | None) -> str:
        match value:
            case str():
                return value
            case {"Fn::Join": [str(separator), [*parts]]}:
                return separator.join(self._filled_in(part, places) for part in parts)
            case reference:
                name = self.named(reference)
                return places[name] if places else f"https://deployed.invalid/{name}"

    def _exporter(self, export: str) -> str:
        for output in self.data.body["Outputs"].values():
            if output.get("Export", {}).get("Name") == export:
                value = output["Value"]
                return str(value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0])
        raise AssertionError(f"the data stack does not export {export}")
