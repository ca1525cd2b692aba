"""A conversation with litellm or instructor. It runs in an environment of its own: requests and replies are lines of JSON."""

import json
import os
import sys
from typing import Any

PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": PARAMETERS}}
WEATHER = "Rain in Bonn."


def litellm_reply(url: str, key: str, history: list[Any], words: str, *, stream: bool) -> tuple[str, list[Any]]:
    import litellm

    new: list[Any] = [*history, {"role": "user", "content": words}]
    while True:
        given: Any = {
            "model": "openai/holdfast",
            "api_base": f"{url}/v1",
            "api_key": key,
            "timeout": 60,
            "tools": [TOOL],
        }
        answer: Any = litellm.completion(messages=new, stream=stream, **given)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=new)
        message = answer.choices[0].message
        new.append({"content": "", **message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})})
        if not message.tool_calls:
            return str(message.content), new
        new += [{"role": "tool", "tool_call_id": call.id, "content": WEATHER} for call in message.tool_calls]


def instructor_reply(url: str, key: str, history: list[Any], words: str, *, stream: bool) -> tuple[str, list[Any]]:
    """A stream of partial answers has no ids of calls; its answer is added as text, as users of the library do."""
    import instructor
    import openai
    import pydantic

    class Answer(pydantic.BaseModel):
        text: str

    tool = "PartialAnswer" if stream else "Answer"
    asked = f"{words}\nuse tool {tool} {json.dumps({'text': f'You said: {words}'})}"
    new: list[Any] = [*history, {"role": "user", "content": asked}]
    client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key=key, timeout=60))
    if stream:
        [*_, partial] = client.chat.completions.create_partial(model="holdfast", messages=new, response_model=Answer)
        return str(partial.text), [*new, {"role": "assistant", "content": partial.model_dump_json()}]
    answer, completion = client.chat.completions.create_with_completion(
        model="holdfast", messages=new, response_model=Answer
    )
    message = completion.choices[0].message
    new.append({"content": "", **message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})})
    new += [{"role": "tool", "tool_call_id": call.id, "content": "taken"} for call in message.tool_calls or []]
    return answer.text, new


def main() -> None:
    form, url, key = sys.argv[1:]
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    replies, sys.stdout = sys.stdout, sys.stderr  # litellm prints hints
    history: list[Any] = []
    for line in sys.stdin:
        words = json.loads(line)
        try:
            reply = instructor_reply if form.startswith("instructor") else litellm_reply
            text, history = reply(url, key, history, words, stream=form.endswith("stream"))
        except Exception as e:  # noqa: BLE001 # the test decides what to do
            print(json.dumps({"error": f"{type(e).__name__}: {e}"}), file=replies, flush=True)
        else:
            print(json.dumps({"text": text}), file=replies, flush=True)


if __name__ == "__main__":
    main()
