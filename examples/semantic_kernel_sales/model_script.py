"""The part of the model in this demo: it guesses a column name, reads the traceback and mends its code.

Each step follows from what the tools really answered; were the file or the errors others, so would the answers be.
"""

from __future__ import annotations

import re

from scripted_model import Answer, Call, Conversation

FIRST_TRY = """\
import pandas as pd
df = pd.read_csv("/work/sales.csv")
print("columns:", ", ".join(df.columns))
top = df.groupby("region")["revenue"].sum().nlargest(3)
print(top.to_string())
"""

MENDED = """\
df["revenue"] = {product}
top = df.groupby("region")["revenue"].sum().nlargest(3)
for region, revenue in top.items():
    print(f"{{region}}: {{revenue:.2f}}")
"""

CHART = """\
import matplotlib.pyplot as plt
plt.figure(figsize=(6, 3.5))
top.plot.bar(color="#3b6ea5", rot=0)
plt.ylabel("revenue")
plt.title("Top 3 regions by revenue")
plt.tight_layout()
plt.show()
"""


def decide(conversation: Conversation) -> Answer:
    """The next step for this conversation."""
    results = conversation.tool_results
    if not results:
        table = re.search(r"```csv\n(.*?)```", conversation.request, re.DOTALL)
        if table is None:
            return "I see no CSV in your message. Please paste it between ```csv and ```."
        return Call("write_file", path="/work/sales.csv", content=table.group(1))
    last = results[-1]
    if last.startswith("wrote "):
        return Call("run_python", code=FIRST_TRY)
    if missing := re.search(r"KeyError: '(?:Column not found: )?([^']+)'", last):
        return mend(missing.group(1), results)
    if "image/png" in last:
        return answer(results)
    if top_regions(last):
        return Call("run_python", code=CHART)
    return f"I could not finish. The last thing I was told is:\n{last}"


def mend(missing: str, results: list[str]) -> Answer:
    """New code after a column was not there, written from the columns that the file was seen to have."""
    found = re.search(r"^columns: (.+)$", results[-1], re.MULTILINE)
    columns = found.group(1).split(", ") if found else []
    factors = [column for column in columns if re.search(r"units|quantity|price", column)]
    if missing != "revenue" or len(factors) != 2:
        return f"The file has no column {missing!r}, and I see no way to compute it from {columns}."
    return Call("run_python", code=MENDED.format(product=" * ".join(f'df["{factor}"]' for factor in factors)))


def top_regions(output: str) -> list[tuple[str, float]]:
    """The lines `name: number` of a tool's output."""
    lines = re.findall(r"^(\w[\w ]*): ([0-9]+(?:\.[0-9]+)?)$", output, re.MULTILINE)
    return [(region, float(revenue)) for region, revenue in lines]


def answer(results: list[str]) -> str:
    """The final sentence, with the numbers that came out of the sandbox."""
    regions = next(found for found in map(top_regions, reversed(results)) if found)
    ranked = [f"{place}. {region} with {revenue:,.2f}" for place, (region, revenue) in enumerate(regions, 1)]
    return "The top 3 regions by revenue are:\n" + "\n".join(ranked) + "\nThe chart above shows them side by side."
