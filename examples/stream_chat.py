"""Two turns of a streamed conversation with the OpenAI SDK: both are served by the worker that has the cache.

    pip install openai
    infera serve --sim 2 &
    python examples/stream_chat.py http://127.0.0.1:8000
"""

import sys

from openai import OpenAI


def main(address: str) -> None:
    """Talk to the server at `address`."""
    client = OpenAI(base_url=f"{address}/v1", api_key="none")
    model = client.models.list().data[0].id
    session = {"X-Session-Id": "example-1"}
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    for question in ("And why are sunsets red?", None):
        said = ""
        with client.chat.completions.with_streaming_response.create(
            model=model, messages=messages, max_tokens=32, stream=True, extra_headers=session
        ) as response:
            print(f"{response.headers['x-infera-worker']}: ", end="")
            for chunk in response.parse():
                if chunk.choices and chunk.choices[0].delta.content:
                    said += chunk.choices[0].delta.content
                    print(chunk.choices[0].delta.content, end="", flush=True)
        print()
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": question or ""}]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
