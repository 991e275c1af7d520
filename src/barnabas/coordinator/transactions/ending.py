"""The effect of EndTxn in each state, by the rules of KIP-98 and, for transactions v2, KIP-890.

Up to v1 a producer keeps its epoch, so a repeated EndTxn looks like the first: only the state tells, and
Empty has nothing to end. With v2 the first attempt raised the epoch:

                     the producer's epoch is      abort        commit
    Empty            current                      go           INVALID_TXN_STATE
    CompleteAbort    current                      go           INVALID_TXN_STATE
                     one behind (a repeat)        done         INVALID_TXN_STATE
    CompleteCommit   current                      go           INVALID_TXN_STATE
                     one behind (a repeat)        refused      done

An abort "goes" although nothing was added, because a v2 producer may not know whether its first write has
arrived. Everything else that does not fit has been fenced.
"""

from __future__ import annotations

from barnabas.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    Transaction,
    TransactionState,
)
from barnabas.errors import ErrorCode, KafkaError
from barnabas.types import ProducerIdentity

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def must_end(transaction: Transaction, producer: ProducerIdentity, *, commit: bool, version: int) -> bool:
    """Whether there is a transaction to end; False when this is a repeat of what has been done.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while the markers of
            the same decision are being written, INVALID_TXN_STATE.
    """
    bumps_epoch = version >= EPOCH_BUMP_VERSION
    is_repeat = bumps_epoch and _is_repeat(transaction, producer)
    is_current = producer == transaction.producer
    if producer.producer_id != transaction.producer_id and not is_repeat:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not _has_valid_epoch(transaction.state, is_current, is_repeat, bumps_epoch):
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"epoch {producer.epoch} of producer {producer.producer_id} has been followed by "
            f"{transaction.epoch}",
        )
    state = transaction.state
    if state is TransactionState.ONGOING:
        return True
    if state.is_prepared and commit is (state is TransactionState.PREPARE_COMMIT):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state in _COMPLETE and (is_repeat or not bumps_epoch):
        if commit is (state is TransactionState.COMPLETE_COMMIT):
            return False
    elif bumps_epoch and not commit and not state.is_prepared:
        return True
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"a transaction in state {state.label} cannot be {'committed' if commit else 'aborted'}",
    )


def _is_repeat(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """The first attempt has raised the epoch, or, at the end of the epochs, changed the id."""
    if producer.producer_id == transaction.producer_id and producer.epoch + 1 == transaction.epoch:
        return True
    return (
        producer == ProducerIdentity(transaction.previous_producer_id, MAX_EPOCH - 1)
        and transaction.epoch == 0
    )


def _has_valid_epoch(state: TransactionState, is_current: bool, is_repeat: bool, bumps_epoch: bool) -> bool:
    if not bumps_epoch or state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return is_current
    return is_repeat or (is_current and not state.is_prepared)
