"""The generated documents agree with the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.docs import pages as docs
from tools.docs.kafka_apis import KAFKA_APIS, WHY_ABSENT
from tools.docs.protocol_page import OF_BARNABAS

from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.server.handlers import load

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", docs.DOCUMENTS)
def test_generated_document_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == docs.render(name), "run `make docs`"


def test_every_setting_is_documented() -> None:
    text = docs.render("configuration.md")
    for name in (*BrokerConfig.declared, *TopicConfig.declared):
        assert f"| `{name}` |" in text


def test_every_api_that_is_served_is_documented() -> None:
    text = docs.render("protocol.md")
    for api in load().values():
        assert f"## {api.name}\n" in text


def test_every_api_of_kafka_is_either_served_or_listed_with_the_reason() -> None:
    served = load()
    text = docs.render("protocol.md")
    assert text.count(OF_BARNABAS) == len(served.keys() - KAFKA_APIS.keys())
    assert WHY_ABSENT.keys() <= KAFKA_APIS.keys() - served.keys()
    for key, api in KAFKA_APIS.items():
        if key in served:
            assert served[key].name == api.name
            assert served[key].versions[1] <= api.latest
        else:
            assert f"| {key} | {api.name} | " in text
            assert WHY_ABSENT[key] in text


def test_check_fails_until_the_documents_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "configuration.md" in capsys.readouterr().err
    assert docs.main(["--folder", str(tmp_path)]) == 0
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "protocol.md").write_text("something else", encoding="utf-8")
    assert docs.stale(tmp_path) == ["protocol.md"]
