"""The endpoint on its own, over real HTTP."""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted_model import Call, ScriptedModel

TOOLS = [{"type": "function", "function": {"name": "code-run_python", "parameters": {}}}]


def decide(conversation):
    if conversation.request == "impossible":
        return Call("no_such_tool")
    if not conversation.tool_results:
        return Call("run_python", code="print(6 * 7)" + " " * 200)
    return f"It is {conversation.tool_results[-1].strip()}."


@pytest.fixture
def model():
    with ScriptedModel(decide) as running:
        yield running


def post(model, **body):
    request = urllib.request.Request(
        model.base_url + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read().decode()


def test_the_first_answer_calls_the_tool_under_the_name_that_the_client_offers(model):
    answer = json.loads(post(model, messages=[{"role": "user", "content": "6*7?"}], tools=TOOLS))
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "code-run_python"
    assert "6 * 7" in json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["code"]


def test_the_final_answer_holds_what_the_tool_said(model):
    messages = [{"role": "user", "content": "6*7?"}, {"role": "tool", "tool_call_id": "x", "content": "4242\n"}]
    answer = json.loads(post(model, messages=messages, tools=TOOLS))
    assert answer["choices"][0]["message"]["content"] == "It is 4242."
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_streamed_call_put_together_is_the_whole_call(model):
    body = post(model, messages=[{"role": "user", "content": "6*7?"}], tools=TOOLS, stream=True)
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    parts = [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas if "tool_calls" in delta]
    assert len(parts) > 2
    assert json.loads("".join(parts)) == {"code": "print(6 * 7)" + " " * 200}


@pytest.mark.parametrize(
    "body",
    [{"messages": []}, {}, {"messages": [{"role": "user", "content": "impossible"}]}],
    ids=["no-messages", "no-field", "tool-not-offered"],
)
def test_a_request_that_the_script_cannot_answer_is_refused_with_a_reason(model, body):
    with pytest.raises(urllib.error.HTTPError) as refusal:
        post(model, **body)
    assert refusal.value.code == 400
    assert json.loads(refusal.value.read())["error"]["message"]
