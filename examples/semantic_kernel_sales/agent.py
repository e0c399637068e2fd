"""A Semantic Kernel agent that answers a question about a CSV by running code in an Atoll sandbox.

Environment: PANDASTACK_API and PANDASTACK_API_KEY say where the sandboxes are. With OPENAI_API_KEY set the agent asks
that service (OPENAI_BASE_URL and OPENAI_MODEL are honoured); without it the model is played by `model_script.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.filters import FunctionInvocationContext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "model"))
from code_plugin import CodePlugin  # noqa: E402
from model_script import decide  # noqa: E402
from scripted_model import ScriptedModel  # noqa: E402

QUESTION = """\
Here are our sales. Save them as /work/sales.csv, then give me the top 3 regions by revenue and a bar chart of them.

```csv
{csv}```"""


@contextlib.contextmanager
def chat_service() -> Iterator[OpenAIChatCompletion]:
    """The model that answers: the user's own when there is a key for it, the scripted one otherwise."""
    if os.environ.get("OPENAI_API_KEY"):
        yield OpenAIChatCompletion(ai_model_id=os.environ.get("OPENAI_MODEL", "gpt-4o"))
        return
    with ScriptedModel(decide) as model:
        client = AsyncOpenAI(base_url=model.base_url, api_key="none-needed")
        yield OpenAIChatCompletion(ai_model_id="scripted", async_client=client)


async def show_calls(context: FunctionInvocationContext, next: Callable[..., Awaitable[None]]) -> None:
    """A filter: prints what the agent asks of a tool and what it gets back. Semantic Kernel sets the names."""
    print(f"\n── {context.function.fully_qualified_name}")
    for name, value in context.arguments.items():
        print(indented(f"{name} = {value}" if "\n" not in str(value) else f"{name} =\n{value}"))
    await next(context)
    print("   answer:")
    print(indented(str(context.result)))


def indented(text: str, head: int = 12, tail: int = 6) -> str:
    """`text` set in, without its middle when it is long."""
    lines = text.rstrip().splitlines()
    if len(lines) > head + tail + 1:
        lines = [*lines[:head], f"... {len(lines) - head - tail} more lines", *lines[-tail:]]
    return textwrap.indent("\n".join(lines), "   │ ")


async def ask(plugin: CodePlugin, question: str) -> str:
    """One question to the agent, with the plugin as its tools."""
    with chat_service() as service:
        kernel = Kernel()
        kernel.add_service(service)
        kernel.add_plugin(plugin, plugin_name="code")
        kernel.add_filter("function_invocation", show_calls)
        agent = ChatCompletionAgent(
            kernel=kernel,
            name="analyst",
            instructions="You answer questions about data by running Python. Read errors, mend your code, go on.",
            function_choice_behavior=FunctionChoiceBehavior.Auto(maximum_auto_invoke_attempts=10),
        )
        response = await agent.get_response(messages=question)
        return str(response.content)


def table(timings: list[tuple[str, float]]) -> str:
    """The timings in two columns."""
    width = max(len(label) for label, _ in timings)
    return "\n".join(f"   {label:<{width}}  {milliseconds:>9.1f} ms" for label, milliseconds in timings)


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks an agent for the top 3 regions by revenue of a CSV.")
    parser.add_argument("--csv", type=Path, default=HERE / "sales.csv", help="the sales to analyse")
    parser.add_argument("--charts", type=Path, default=Path("charts"), help="folder for the charts")
    parser.add_argument("--report", type=Path, help="also write answer, charts and timings to this JSON file")
    arguments = parser.parse_args()

    plugin = CodePlugin(arguments.charts)
    print(f"sandbox {plugin.sandbox_id}")
    try:
        answer = asyncio.run(ask(plugin, QUESTION.format(csv=arguments.csv.read_text())))
    finally:
        plugin.close()

    print("\n── final answer")
    print(indented(answer))
    for chart in plugin.charts:
        print(f"\nchart saved: {chart.resolve()}")
    print("\nwhat it took, seen from this client:")
    print(table(plugin.timings))
    if arguments.report:
        report = {"answer": answer, "charts": [str(chart) for chart in plugin.charts], "timings": plugin.timings}
        arguments.report.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
