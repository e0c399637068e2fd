"""The scripted model of the AG2 and AutoGen recipes: draws samples, stumbles over a name, mends it, reports, plots."""

from __future__ import annotations

import re

from scripted_model import Answer, Call, Conversation

QUESTION = (
    "Draw 1,000 samples from a normal distribution (mean 50, standard deviation 8) with numpy, seeded with 7. "
    "Report the sample mean and the 95th percentile, then plot a histogram with matplotlib (call plt.show())."
)
DRAW = "import numpy as np\nsamples = np.random.default_rng(7).normal(50, 8, 1000)\n"
# What any correct program for the question prints; the tests run it by itself and compare.
REFERENCE = DRAW + "print(f'mean={samples.mean():.6f} p95={np.percentile(samples, 95):.6f}')"
STUMBLE = DRAW + "print(f'mean={smaples.mean():.6f} p95={np.percentile(samples, 95):.6f}')"
PLOT = "import matplotlib.pyplot as plt\nplt.hist(samples, bins=30)\nplt.title('samples')\nplt.show()"


def decide(conversation: Conversation) -> Answer:
    """The next step for this conversation."""
    results = conversation.tool_results or framework_results(conversation)
    if not results:
        return Call("run_python", code=STUMBLE)
    last = results[-1]
    if found := re.search(r"NameError: name '(\w+)' is not defined", last):
        # The samples were drawn before the error: a context that keeps state has them, so they are not drawn again.
        return Call("run_python", code=REFERENCE.removeprefix(DRAW).replace(found.group(1), "samples"))
    if "[chart]" in last:
        mean, percentile = next(numbers for numbers in map(printed, results) if numbers)
        return f"The sample mean is {mean} and the 95th percentile is {percentile}. TERMINATE"
    if printed(last):
        return Call("run_python", code=PLOT)
    return f"I could not finish; the tool said: {last} TERMINATE"


def printed(output: str) -> tuple[str, str] | None:
    """The two numbers, if `output` has them."""
    found = re.search(r"mean=(-?[\d.]+) p95=(-?[\d.]+)", output)
    return (found.group(1), found.group(2)) if found else None


def framework_results(conversation: Conversation) -> list[str]:
    """Tool results of every turn: AG2 may put messages by its own agents between them."""
    return [str(message.get("content")) for message in conversation.messages if message.get("role") == "tool"]
