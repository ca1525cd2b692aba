import pytest

from holdfast.model.errors import AuthFailed, ContextTooLong, ProviderFailed, RateLimited, Refused, Unreachable
from holdfast.providers.error_mapping import VendorError, hide_keys, map_error, retry_after

TOO_LONG = {
    "OpenAI": (400, ("context_length_exceeded",), "Your input exceeds the context window of this model."),
    "OpenAI, older": (400, (), "This model's maximum context length is 8192 tokens. However, you requested 9000."),
    "OpenAI, by tier": (429, ("rate_limit_exceeded",), "Request too large for gpt-4o on tokens per min (TPM)"),
    "Anthropic": (400, ("invalid_request_error",), "prompt is too long: 213462 tokens > 200000 maximum"),
    "Anthropic, with the answer": (400, (), "input length and `max_tokens` exceed context limit: 1 + 2 > 2"),
    "Anthropic, by bytes": (413, ("request_too_large",), "Request exceeds the maximum size"),
    "llama.cpp": (400, ("400", "exceed_context_size_error"), "the request exceeds the available context size"),
    "Gemini": (400, (), "The input token count (1200000) exceeds the maximum number of tokens allowed"),
    "Groq": (400, ("invalid_request_error",), "Please reduce the length of the messages or completion."),
    "xAI": (400, (), "This model's maximum prompt length is 131072 but the request contains 200000 tokens."),
    "Bedrock": (400, (), "Input is too long for requested model."),
    "LM Studio": (400, (), "The number of tokens to keep is greater than the context length"),
    "in a stream": (None, ("context_length_exceeded",), ""),
}


@pytest.mark.parametrize(("status", "codes", "text"), TOO_LONG.values(), ids=TOO_LONG)
def test_each_vendors_context_length_error_is_recognised(status: int | None, codes: tuple[str, ...], text: str) -> None:
    failed = map_error(VendorError(who="w", model="m", status=status, codes=codes, text=text))

    assert isinstance(failed, ContextTooLong)


OTHERS: dict[str, tuple[int | None, tuple[str, ...], str, type[ProviderFailed]]] = {
    "bad request": (400, ("invalid_request_error",), "messages.3: unexpected block", Refused),
    "no key": (401, (), "", AuthFailed),
    "no right": (403, (), "", AuthFailed),
    "no credit": (402, (), "Insufficient credits", Refused),
    "no quota": (429, ("insufficient_quota",), "You exceeded your current quota", Refused),
    "no quota this minute": (429, (), "You exceeded your current quota. Please retry in 36s.", RateLimited),
    "too many tokens a minute": (429, (), "Too many tokens, please wait before trying again.", RateLimited),
    "no balance": (400, (), "Your credit balance is too low", Refused),
    "no such model": (404, ("model_not_found",), "", Refused),
    "unprocessable": (422, (), "", Refused),
    "timeout": (408, (), "", Unreachable),
    "conflict": (409, (), "", Unreachable),
    "too many": (429, (), "", RateLimited),
    "their error": (500, (), "", Unreachable),
    "overloaded": (529, ("overloaded_error",), "", Unreachable),
    "overloaded in a stream": (200, ("overloaded_error",), "", Unreachable),
    "a number in a stream": (None, ("502",), "Provider returned error", Unreachable),
    "refused in a stream": (200, ("invalid_request_error",), "", Refused),
    "anything in a stream": (None, ("what_is_this",), "", Unreachable),
}


@pytest.mark.parametrize(("status", "codes", "text", "kind"), OTHERS.values(), ids=OTHERS)
def test_each_vendor_response_maps_to_one_error(
    status: int | None, codes: tuple[str, ...], text: str, kind: type[ProviderFailed]
) -> None:
    failed = map_error(VendorError(who="openai at example.org", model="m", status=status, codes=codes, text=text))

    assert type(failed) is kind
    assert "openai at example.org" in str(failed)


CONTENT = {
    "a filter": (400, ("content_policy_violation",), "", "The prompt was flagged", True),
    "a picture": (400, ("invalid_request_error",), "", "messages.2.content.0.image.source: could not be read", True),
    "a named message": (400, ("invalid_value",), "messages[3].content", "Invalid value", True),
    "an item": (400, (), "input[0]", "Invalid value", True),
    "nothing said": (400, (), "", "", True),
    "unprocessable": (422, (), "", "cannot be processed", True),
    "a setting": (400, ("unsupported_value",), "temperature", "Unsupported value: 'temperature'", False),
    "a setting by name": (400, (), "reasoning_effort", "Invalid value", False),
    "an unknown setting": (400, ("invalid_request_error",), "", "Unrecognized request argument supplied: x", False),
    "a schema": (400, ("invalid_function_parameters",), "tools[0].function.parameters", "Invalid schema", False),
    "a tool": (400, ("invalid_request_error",), "", "tools.0.custom.input_schema: invalid", False),
    "a model": (400, (), "", "The model `x` does not exist", False),
    "no balance": (400, (), "", "Your credit balance is too low", False),
    "the order": (400, (), "", "tool_call_ids did not have response messages: c1", False),
}


@pytest.mark.parametrize(("status", "codes", "param", "text", "blamed"), CONTENT.values(), ids=CONTENT)
def test_a_refusal_is_attributed_to_the_messages_or_to_something_else(
    status: int, codes: tuple[str, ...], param: str, text: str, blamed: bool
) -> None:
    failed = map_error(VendorError(who="a", model="m", status=status, codes=codes, param=param, text=text))

    assert isinstance(failed, Refused)
    assert failed.blames_input is blamed


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": f"Wed, 21 Oct {'9' * 30} 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": f"Wed, 21 Oct 2026 07:28:30 +{'9' * 30}", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
    ],
)
def test_the_wait_comes_from_the_server(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_long_error_message_is_truncated() -> None:
    failed = map_error(VendorError(who="w", model="m", status=400, text="x" * 10_000))

    assert len(str(failed)) < 500


def test_whatever_looks_like_a_key_is_hidden() -> None:
    shown = hide_keys("not mine-mine, nor sk-proj-abcdef123, AIzaSyA1234567, nor Bearer abc.def", "mine-mine")

    assert shown == "not …, nor …, …, nor Bearer …"
