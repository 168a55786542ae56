import errno
import json
import os
from pathlib import Path

import pytest
from grpo_refserver.engine import Refusal, VersionError
from grpo_refserver.version_folder import passing_errors, version_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    whole(tmp_path / "secret")
    (tmp_path / "versions").mkdir()
    return tmp_path / "versions"


def whole(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def refused(root: Path | None, path: Path | str | None) -> VersionError:
    with pytest.raises(VersionError) as caught:
        version_folder(root, "step-5", Path(path) if path is not None else None)
    return caught.value


def test_a_whole_folder_below_the_root_is_taken_by_either_path(root):
    folder = whole(root / "step-5")
    assert version_folder(root, "step-5", folder) == folder
    assert version_folder(root, "step-5", Path("step-5")) == folder
    (root / "deep").mkdir()
    assert version_folder(root, "step-6", whole(root / "deep" / "step-6")) == root / "deep" / "step-6"


def test_the_root_may_be_reached_by_a_link(root, tmp_path):
    (tmp_path / "mounted").symlink_to(root)
    folder = whole(root / "step-5")
    assert version_folder(tmp_path / "mounted", "step-5", tmp_path / "mounted" / "step-5") == folder
    assert version_folder(tmp_path / "mounted", "step-5", folder) == folder


def test_without_a_path_or_a_root_nothing_is_known(root):
    for error in (refused(root, None), refused(None, root / "step-5")):
        assert (error.refusal, error.field) == (Refusal.UNKNOWN, "version")


@pytest.mark.parametrize(
    "path", ["../secret", "step-5/../../secret", "/etc", ".", "{root}", "{root}/../secret", "{root}2"]
)
def test_nothing_outside_the_root_is_read(root, path):
    whole(root / "step-5")
    whole(Path(f"{root}2"))
    error = refused(root, path.format(root=root))
    assert (error.refusal, error.field) == (Refusal.BAD, "versionPath")
    assert "outside --versions-root" in str(error)


def test_whether_something_outside_exists_is_not_told(root):
    assert str(refused(root, "../secret")).replace("secret", "x") == str(refused(root, "../none")).replace("none", "x")


def test_links_out_of_the_root_are_refused(root, tmp_path):
    (root / "folder").symlink_to(tmp_path / "secret")
    assert "symbolic link" in str(refused(root, "folder"))
    folder = whole(root / "step-5")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "secret" / "model.safetensors")
    error = refused(root, folder)
    assert error.refusal is Refusal.BAD
    assert str(error).startswith("model.safetensors in ")


def test_a_folder_not_there_yet_may_come(root):
    error = refused(root, root / "step-5")
    assert error.refusal is Refusal.UNAVAILABLE
    assert "(yet)" in str(error)


def test_what_is_no_folder_stays_wrong(root):
    (root / "file").write_text("")
    assert refused(root, "file").refusal is Refusal.BAD


def test_what_is_not_a_whole_model_in_safetensors_is_refused(root):
    def broken(name: str, **files: str | None) -> str:
        folder = whole(root / name)
        for file, content in files.items():
            path = folder / file.replace("__", ".")
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(content)
        error = refused(root, folder)
        assert error.refusal is Refusal.BAD
        return str(error)

    assert "no config.json" in broken("a", config__json=None)
    assert "no weights" in broken("b", model__safetensors=None)
    assert "only pytorch_model.bin, which are pickles" in broken(
        "c", model__safetensors=None, pytorch_model__bin="pickle"
    )
    assert "adapter" in broken("d", adapter_config__json="{}")
    index = json.dumps({"weight_map": {"w": "model-1.safetensors", "v": "../secret/model.safetensors"}})
    assert "names ../secret/model.safetensors, which is not there" in broken("e", model__safetensors__index__json=index)
    assert "is not JSON" in broken("f", model__safetensors__index__json="{")
    assert "no JSON object" in broken("g", model__safetensors__index__json="[]")


@pytest.mark.parametrize(
    ("number", "refusal"),
    [(errno.ESTALE, Refusal.UNAVAILABLE), (errno.EIO, Refusal.UNAVAILABLE), (errno.EACCES, Refusal.BAD)],
)
def test_what_a_file_system_says_decides_whether_to_try_again(number, refusal):
    with pytest.raises(VersionError, match=os.strerror(number)) as caught, passing_errors("/versions/step-5"):
        raise OSError(number, os.strerror(number))
    assert caught.value.refusal is refusal
