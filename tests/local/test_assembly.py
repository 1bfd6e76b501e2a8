"""A synthesized app, read as the deployment needs it."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from lamplighter.local.assembly import Assembly

BUCKET = "cdk-assets-${AWS::AccountId}-${AWS::Region}"


@pytest.fixture
def assembly(tmp_path: Path) -> Assembly:
    """Two stacks, the one that imports named first; a layer as a folder, a template as a file."""
    artifacts: dict[str, object] = {
        "work.assets": {"type": "cdk:asset-manifest", "properties": {"file": "work.assets.json"}},
        "work": _stack("work", dependencies=["data", "work.assets"]),
        "data": _stack("data", dependencies=[]),
        "Tree": {"type": "cdk:tree", "properties": {"file": "tree.json"}},
    }
    files = {
        "1": _file("asset.1", packaging="zip", key="1.zip"),
        "2": _file("work.template.json", packaging="file", key="2.json"),
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    (tmp_path / "work.assets.json").write_text(json.dumps({"files": files}))
    for name in ("work", "data"):
        template = {"Resources": {f"{name}Queue": {"Type": "AWS::SQS::Queue"}}}
        (tmp_path / f"{name}.template.json").write_text(json.dumps(template))
    (tmp_path / "asset.1" / "python").mkdir(parents=True)
    (tmp_path / "asset.1" / "python" / "tasks.py").write_text("import lamplighter")
    return Assembly(folder=tmp_path, account="000000000000", region="us-east-1")


def test_a_stack_comes_after_those_that_it_imports_from(assembly: Assembly) -> None:
    assert [template.stack for template in assembly.templates()] == ["data", "work"]


def test_a_template_is_found_where_its_asset_is_put(assembly: Assembly) -> None:
    places = {(asset.bucket, asset.key) for asset in assembly.assets()}

    [work] = [template for template in assembly.templates() if template.stack == "work"]

    assert (work.bucket, work.key) in places
    assert work.bucket == "cdk-assets-000000000000-us-east-1"
    assert work.resources == {"workQueue"}


def test_a_folder_becomes_an_archive_and_a_file_stays_one(assembly: Assembly) -> None:
    layer, template = assembly.assets()

    with zipfile.ZipFile(io.BytesIO(layer.content())) as archive:
        assert archive.namelist() == ["python/tasks.py"]
        assert archive.read("python/tasks.py") == b"import lamplighter"
    assert json.loads(template.content())["Resources"]


def _stack(name: str, *, dependencies: list[str]) -> object:
    properties = {
        "templateFile": f"{name}.template.json",
        "stackTemplateAssetObjectUrl": f"s3://{BUCKET}/2.json",
    }
    return {
        "type": "aws:cloudformation:stack",
        "properties": properties,
        "dependencies": dependencies,
    }


def _file(path: str, *, packaging: str, key: str) -> object:
    return {
        "source": {"path": path, "packaging": packaging},
        "destinations": {"here": {"bucketName": BUCKET, "objectKey": key}},
    }
