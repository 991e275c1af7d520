"""Decides the effect of EndTxn in each state, by the rules of KIP-98 and, for transactions v2, KIP-890.

In a prepared state the coordinator answers CONCURRENT_TRANSACTIONS for any epoch and decision, and the
producer retries. A v2 producer with the raised epoch gets this error, too. This producer may abort its next,
empty transaction before the markers of the last one are written (KAFKA-18464).

Up to v1 a producer keeps its epoch, so a repeated EndTxn has the same epoch as the first one. If the
transaction is complete, an EndTxn with the same decision is a repeat: it succeeds and changes nothing. An
EndTxn with the other decision, and any EndTxn in Empty, gets INVALID_TXN_STATE.

With v2 the first EndTxn has raised the epoch. In the table, "ends" means that the coordinator ends a
transaction. "Repeats" means that the request succeeds and changes nothing:

                     the producer's epoch is      abort                 commit
    Empty            current                      ends                  INVALID_TXN_STATE
    CompleteAbort    current                      ends                  INVALID_TXN_STATE
                     one behind (a repeat)        repeats               PRODUCER_FENCED
    CompleteCommit   current                      ends                  INVALID_TXN_STATE
                     one behind (a repeat)        INVALID_TXN_STATE     repeats

An abort with the current epoch ends a transaction without partitions: a v2 producer that aborts may not know
whether its first write has arrived. A producer with any other epoch is fenced.

If the coordinator has aborted a transaction, the producer's later commit gets PRODUCER_FENCED (KAFKA-20785):
the producer can begin anew. Kafka 4.2.1 answers INVALID_TXN_STATE, which is fatal for the producer.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity
from barnabas.broker.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    Transaction,
    TransactionState,
)

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def must_end(transaction: Transaction, producer: ProducerIdentity, *, commit: bool, version: int) -> bool:
    """Return True if EndTxn must end the transaction, False if the request repeats an earlier decision.

    Args:
        transaction: the stored state of the transactional id.
        producer: the producer id and epoch in the request.
        commit: whether the request commits.
        version: version of transactions that the producer uses.

    Raises:
        KafkaError: CONCURRENT_TRANSACTIONS, the markers of the last decision are being written;
            INVALID_PRODUCER_ID_MAPPING, the transactional id has another producer id; PRODUCER_FENCED, the
            producer's epoch is neither the current one nor, with v2 in a complete state, the one before the
            last EndTxn, or it commits an aborted transaction with the earlier one; INVALID_TXN_STATE, the
            state does not allow the decision.
    """
    if transaction.is_ending_for(producer):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    bumps_epoch = version >= EPOCH_BUMP_VERSION
    is_repeat = bumps_epoch and _is_repeat(transaction, producer)
    is_current = producer == transaction.producer
    if producer.producer_id != transaction.producer_id and not is_repeat:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state = transaction.state
    is_complete = state in _COMPLETE
    if not is_current and not (is_repeat and is_complete):
        raise _fenced(transaction, producer)
    if state is TransactionState.ONGOING:
        return True
    if is_complete and (is_repeat or not bumps_epoch):
        if commit is (state is TransactionState.COMPLETE_COMMIT):
            return False
        if commit and is_repeat:
            raise _fenced(transaction, producer)
    elif bumps_epoch and not commit:
        return True
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"a transaction in state {state.label} cannot be {'committed' if commit else 'aborted'}",
    )


def _fenced(transaction: Transaction, producer: ProducerIdentity) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"producer {producer.producer_id} has epoch {transaction.epoch} now, and {producer.epoch} is fenced",
    )


def _is_repeat(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Whether `producer` is the identity that the producer had before the last EndTxn.

    A request with this identity can repeat that EndTxn, for example because its response was lost. The last
    EndTxn has raised the epoch, or has replaced a producer id whose epochs were used up.
    """
    if producer.producer_id == transaction.producer_id and producer.epoch + 1 == transaction.epoch:
        return True
    return (
        producer == ProducerIdentity(transaction.previous_producer_id, MAX_EPOCH - 1)
        and transaction.epoch == 0
    )
