"""Computes balances from transfers, exactly once. Run it with `barnabas pipeline run pipeline.py`.

A transfer has two postings: the payer's debit and the payee's credit. Spark processes each account
separately, so it can process all accounts at the same time. A transfer therefore takes two steps. The payer's
account decides. If there is enough money, it subtracts the amount and writes the transfer to the topic
`credits`. The payee's account reads this topic and adds the amount.
"""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from barnabas.pipelines import pipeline, sink, source, step

CASH = "cash"  # the bank's own account, through which money comes in; the only one that may be below zero

pipeline(spark={"spark.sql.shuffle.partitions": "2"})


@source(
    topic="transfers,credits",
    format="json",
    schema="id STRING NOT NULL, payer STRING NOT NULL, payee STRING NOT NULL, amount BIGINT NOT NULL",
    dead_letter="transfers-bad",
    # credits of a transaction that was aborted must not be seen, or its money would be there twice
    options={"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "1000"},
)
def transfers(rows: DataFrame) -> DataFrame:
    return rows


@step
def postings(transfers: DataFrame) -> DataFrame:
    is_debit = F.col("_record.topic") == "transfers"
    account = F.when(is_debit, F.col("payer")).otherwise(F.col("payee"))
    order = ("_record.partition", "_record.offset")
    return transfers.select(
        account.alias("account"), is_debit.alias("is_debit"), *order, "id", "payer", "payee", "amount"
    )


class Account(StatefulProcessor):
    """One account. Spark keeps its balance, and passes the postings of a batch to it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._balance = handle.getValueState("balance", "cents BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timer: Any) -> Iterator[pd.DataFrame]:
        (account,) = key
        balance = self._balance.get()[0] if self._balance.exists() else 0
        written = []
        # Spark gives the rows in any order; a batch that is done again has to come to the same decisions
        batch = pd.concat(rows).sort_values(["is_debit", "partition", "offset"])
        for posting in batch.itertuples():
            amount = int(posting.amount)
            transfer = {"id": posting.id, "payer": posting.payer, "payee": posting.payee, "amount": amount}
            if not posting.is_debit:
                balance += amount
            elif amount <= 0:
                written.append(("refused", account, {**transfer, "reason": "the amount is not above zero"}))
            elif amount > balance and account != CASH:
                written.append(("refused", account, {**transfer, "reason": "overdraft", "balance": balance}))
            else:
                balance -= amount
                written.append(("credits", posting.payee, transfer))
        self._balance.update((balance,))
        written.append(("balances", account, {"account": account, "balance": balance}))
        yield pd.DataFrame(
            [(topic, of, json.dumps(value)) for topic, of, value in written],
            columns=["topic", "key", "value"],
        )

    def close(self) -> None:
        pass


# one sink for all three: what an account decides is written in one transaction, or not at all
@sink(topic="credits,refused,balances", format="raw", delivery="exactly-once")
def decisions(postings: DataFrame) -> DataFrame:
    accounts = postings.groupBy("account")
    return accounts.transformWithStateInPandas(
        Account(), "topic STRING, key STRING, value STRING", "Append", "None"
    )
