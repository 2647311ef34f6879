"""docs/protocol.md names every message, every field and every subject there is; and messages are what it says."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedtwin.config import LearningConfig
from fedtwin.learning.compression import SCHEMES, compressor_of
from fedtwin.learning.layout import layout_of
from fedtwin.live.run import admission
from fedtwin.live.wire import protocol
from fedtwin.live.wire.protocol import (
    ANSWER,
    RESULT,
    Decline,
    Message,
    Subjects,
    Task,
    Telemetry,
    misfit,
    split_body,
    with_body,
)
from fedtwin.live.wire.updates import KINDS, PREFIX

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
MESSAGES = [
    kind for kind in vars(protocol).values() if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]


def section(name: str) -> str:
    """What stands under the heading of a message."""
    found = re.search(rf"^### {name},[^\n]*\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/protocol.md has no heading for {name}"
    return found[1]


def test_there_are_all_messages() -> None:
    assert len(MESSAGES) == 16


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_field_of_a_message_is_in_its_table(message: type[Message]) -> None:
    rows = [line.split("|")[1] for line in section(message.__name__).splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(message.model_fields) - {"protocol"}
    assert "`protocol`" in PAGE


def test_every_subject_bucket_and_header_is_named() -> None:
    subjects = Subjects("RUN")
    methods = [getattr(subjects, name) for name in vars(Subjects) if not name.startswith("_")]
    places = [method("NAME") for method in methods]
    places += [value for name, value in vars(subjects).items() if not name.startswith("_") and name != "run"]
    assert len(places) == 20
    for place in places:
        assert f"`{place}`" in PAGE, place
    assert f"`{protocol.TOKEN_HEADER}: TOKEN`" in PAGE and "`Nats-Msg-Id: TOKEN-u`" in PAGE and "`Nats-Msg-Id: TOKEN-r`" in PAGE


def test_every_reason_of_the_admission_is_named() -> None:
    text = Path(admission.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'(?<!")"([a-z][a-z ]*): ', text))
    assert {"duplicate", "late", "norm", "range"} <= reasons
    for reason in reasons:
        assert f"`{reason}`" in PAGE, reason


@pytest.mark.parametrize("compress", SCHEMES)
def test_every_part_of_a_compressed_upload_is_in_its_table(compress: str) -> None:
    layout = layout_of({"w": ((4,), False), "n.running_var": ((2,), False), "n.num_batches_tracked": ((), True)})
    compressor = compressor_of(LearningConfig.model_validate({"compress": compress}), layout)
    assert compressor is not None
    page = PAGE.partition("### Compressed uploads")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in page.splitlines() if line.startswith("| `")]
    told = {
        (name.strip("`"), kind) for name, kind, _, schemes in rows if f"`{compress}`" in schemes or schemes.startswith("all")
    }
    assert told == {(PREFIX + name, KINDS[part.dtype]) for name, part in compressor.parts.items()}


def test_a_model_follows_its_message_after_a_line_feed() -> None:
    task = Task(token="0" * 32, round=3, version=2, model_bytes=4)
    body = b"\n{\n\x00"
    header, rest = split_body(b"".join(with_body(task, body)))
    assert Task.model_validate_json(header) == task and bytes(rest) == body
    assert b"\n" not in header
    header, rest = split_body(task.encoded())
    assert Task.model_validate_json(header) == task and not rest


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"gain": 0}', "schema: gain"),
        ('{"gain": NaN}', "schema: "),
        ('{"cpu_hz": 1e13}', "schema: cpu_hz"),
        ('{"temperature_c": 1e400}', "schema: temperature_c"),
        ('{"protocol": 2}', "schema: protocol Input should be 1"),
        ('{"colour": "red"}', "schema: colour"),
        ("[]", "schema: "),
        ("", "schema: "),
    ],
)
def test_what_does_not_fit_is_said_in_a_few_words(data: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Telemetry.model_validate_json(data)
    assert misfit(caught.value).startswith(words) and len(misfit(caught.value)) <= 300 and "\n" not in misfit(caught.value)


def test_an_old_device_may_leave_out_the_protocol() -> None:
    assert Telemetry.model_validate_json("{}").protocol == 1
    assert ANSWER.validate_json('{"kind": "decline", "reason": "busy"}') == Decline(reason="busy")


def test_a_result_needs_its_kind_and_a_token_of_the_right_form() -> None:
    for data in ('{"token": "' + "a" * 32 + '", "reason": "x"}', '{"kind": "failed", "token": "A", "reason": "x"}'):
        with pytest.raises(ValidationError):
            RESULT.validate_json(data)


def test_what_is_missing_is_left_out() -> None:
    assert b"null" not in Telemetry(gain=None, busy=True).encoded() and b'gain"' not in Telemetry().encoded()
