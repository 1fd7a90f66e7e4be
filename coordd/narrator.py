"""Prints one line per transition: for `coordd serve --narrate`, and so for the bundled example."""

import sys
from time import localtime, strftime

from coordd.domain.receipt import Receipt


def narrate(receipts: list[Receipt]) -> None:
    """Write committed receipts to stdout, as people read them."""
    for receipt in receipts:
        if receipt.event == "renew" and receipt.from_state == receipt.to_state:
            continue
        sys.stdout.write(line(receipt) + "\n")
    sys.stdout.flush()


def line(receipt: Receipt) -> str:
    """`12:00:00  demo-1  org/app  pending → offered  by worker:w1`, with what is worth saying behind it."""
    instant = strftime("%H:%M:%S", localtime(receipt.at_ms / 1000))
    change = f"{receipt.from_state or 'new':>12} → {receipt.to_state:<12}"
    said = [f"by {receipt.actor}"]
    if receipt.event == "offer":
        said.append(f"attempt {receipt.attempt}, generation {receipt.generation}")
    if receipt.reason:
        said.append(receipt.reason)
    return f"{instant}  {receipt.lease_id:<10} {receipt.repo:<18} {change} {' · '.join(said)}"
