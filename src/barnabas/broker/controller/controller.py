"""The controller: the elected broker that decides on topics, partitions and settings of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.controller.acls import AclControl
from barnabas.broker.controller.configs import ConfigControl, TryKeys
from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.controller.elections import ElectionControl
from barnabas.broker.controller.eligibility import leaders_to_move
from barnabas.broker.controller.features import FeatureControl
from barnabas.broker.controller.internal_topics import InternalTopics
from barnabas.broker.controller.leader_balance import LeaderBalance
from barnabas.broker.controller.partitions import PartitionControl
from barnabas.broker.controller.producer_ids import ProducerIdControl
from barnabas.broker.controller.quotas import QuotaControl
from barnabas.broker.controller.reassignments import ReassignmentControl
from barnabas.broker.controller.registration import Registration, check_registered
from barnabas.broker.controller.replica_logs import Ask
from barnabas.broker.controller.tokens import TokenControl
from barnabas.broker.controller.topics import TopicControl
from barnabas.broker.controller.unclean_elections import UncleanElections
from barnabas.broker.controller.unregistration import UnregistrationControl
from barnabas.broker.controller.users import UserControl
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.metadata.image import BrokerImage, BrokerState, ClusterImage, ImageDelta
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.lost_nodes import PERMANENT, put_back
from barnabas.broker.metadata.reconnection import persistently
from barnabas.broker.metadata.session import FINAL
from barnabas.broker.metadata.store import (
    Cancel,
    DamagedNodeError,
    Event,
    MetadataStore,
    NoNodeError,
    SessionState,
    StoreError,
    StoreUnavailableError,
)
from barnabas.broker.view import MutableView

log = logger_of(__name__)

#: between two attempts to join while the store is connected, doubled after each; in seconds
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0
#: a broker that waits longer says so
_ADMISSION_EXPECTED_SECONDS = 5.0
#: the delay before deleted nodes are restored, in seconds
_RESTORE_AFTER = 0.5
#: seconds for which a deleted node is left to other brokers if this one has not seen its value
_OTHERS_PATIENCE = 3.0


class Controller:
    """The controller part of one broker. It decides only while this broker is elected (`ControllerElection`).

    Its parts (`controls`) decide one after another, each with an image that shows all earlier decisions.
    Their methods return when this broker's image shows the result. While the store cannot be reached, they
    raise KafkaError(KAFKA_STORAGE_ERROR).

    Args:
        store: metadata store of the cluster.
        loader: loads this broker's image (copy) of the metadata.
        view: settings of this broker, and its image (copy) of the cluster's metadata. Each registration of
            this broker sets the broker epoch in the view.
        broker: the broker to register.
        random: spreads replicas over the brokers.
        ask: sends a request to a broker. Called with the broker's id, which can be this broker's, and the
            request; returns the response, or raises BarnabasError.
        on_failure: called with the error when this broker cannot register, for example because a live broker
            has its id. This broker must then stop.
        token_keys: makes the HMACs of delegation tokens; None if tokens are disabled.
        try_keys: loads keys that are set for this broker's listeners (see `ConfigControl`).
    """

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        view: MutableView,
        broker: BrokerImage,
        random: Random,
        ask: Ask,
        on_failure: Callable[[Exception], None] | None = None,
        token_keys: TokenKeys | None = None,
        try_keys: TryKeys | None = None,
    ) -> None:
        self._store = store
        self._on_failure = on_failure
        self._loader = loader
        self._broker = broker
        self._view = view
        configs, clock = view.configs, view.clock
        self._writes = ControllerWrites(store, loader, self._begin_join)
        self._election = ControllerElection(store, broker.id, clock, self._writes, loader)
        self._unclean = UncleanElections(self._writes, loader, configs, ask, lambda: store.session_timeout)
        #: leaders and ISRs of partitions
        self.partitions = PartitionControl(
            self._writes, loader, configs, self._unclean, ask, self._begin_join
        )
        #: creation and deletion of topics
        self.topics = TopicControl(self._writes, configs, broker.id, random, self.partitions.caught_up)
        #: reassignments of partitions to other brokers
        self.reassignments = ReassignmentControl(
            self._writes, loader, configs, self.partitions.caught_up, self._begin_join
        )
        #: elections of leaders on request
        self.elections = ElectionControl(self._writes, self.partitions.caught_up, ask)
        self._balance = LeaderBalance(self.elections, lambda: self.active, view)
        self._internal_topics = InternalTopics(lambda: self.active, view, self.reassignments.alter_by)
        #: dynamic settings of topics, brokers and groups
        self.configs = ConfigControl(self._writes, configs, broker.id, try_keys)
        #: levels of features
        self.features = FeatureControl(store, self._writes)
        #: unregisters brokers that are gone for good
        self.unregistration = UnregistrationControl(self._writes)
        #: users and their credentials
        self.users = UserControl(self._writes)
        #: quotas of clients
        self.quotas = QuotaControl(self._writes)
        #: access control lists
        self.acls = AclControl(self._writes)
        #: delegation tokens
        self.tokens = TokenControl(self._writes, view, token_keys, random)
        #: blocks of producer ids
        self.producer_ids = ProducerIdControl(store, self._writes, lambda: loader.image.last_producer_id)
        #: the registration of this broker
        self.registration = Registration(store, broker, view, self._begin_join)
        self._admitted = asyncio.Event()
        #: set whenever leaders may have moved
        self._moved = asyncio.Event()
        self._joining: asyncio.Task[None] | None = None
        self._must_join = False
        #: begins the join that puts deleted nodes back
        self._restoring: asyncio.TimerHandle | None = None
        #: the time since which nodes are missing whose values this broker has not seen
        self._missing_since: float | None = None
        self._stepping_down: asyncio.Task[None] | None = None
        self._is_isolated = False
        self._is_stopped = False
        self._cancels: list[Cancel] = []

    @property
    def controls(self) -> tuple[object, ...]:
        """The objects that decide and change the metadata, each for one kind, for example `TopicControl`."""
        return (
            self.partitions,
            self.topics,
            self.reassignments,
            self.elections,
            self.configs,
            self.features,
            self.users,
            self.quotas,
            self.acls,
            self.tokens,
            self.unregistration,
            self.producer_ids,
        )

    @property
    def active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._writes.is_controller

    @property
    def unclean_elections(self) -> int:
        """Number of elections by this broker, since its start, of leaders that may lack committed records."""
        return self._unclean.elected

    async def start(self) -> None:
        """Register the broker and take part in the election of the cluster's controller.

        If this broker is elected, it also elects leaders for partitions without one.

        After this call, a background task repeats the registration and the election. It does so in each new
        session with the metadata store, when the cluster has no controller, and after a connection error.

        Raises:
            StoreError: the store cannot be used; NodeExistsError: a live broker has this broker's id.
        """
        try:
            await self._join()
        except (KafkaError, StoreUnavailableError) as error:
            if isinstance(error, StoreUnavailableError) and not self._may_come_back:
                raise
            log.warning("broker %d tries again to become the controller: %s", self._broker.id, error)
            self._begin_join()
        self._cancels = [self._store.on_state(self._on_state), self._loader.subscribe(self._on_image)]
        self._cancels.append(await persistently(self._store, lambda: self._store.watch("/", self._on_node)))
        # No watcher has received the changes since then.
        image = self._loader.image
        everything = ImageDelta(ClusterImage(), image, brokers=True)
        self._on_image(everything)
        self._balance.start()

    @property
    def _may_come_back(self) -> bool:
        """Whether a lost connection to the metadata store can come back without a restart."""
        return self._store.session_timeout > 0 and self._store.state not in FINAL

    async def enter(self) -> None:
        """Register that the broker runs, and wait until the controller has admitted its broker epoch.

        Before the controller admits the epoch, it ends the leaderships that the broker had before its
        restart, and removes the broker from ISRs. So after this call, the metadata image shows which
        partitions this broker leads now.
        """
        await self.registration.update(state=BrokerState.RUNNING)
        try:
            async with asyncio.timeout(_ADMISSION_EXPECTED_SECONDS):
                await self._admitted.wait()
        except TimeoutError:
            log.warning("waiting for the controller to admit broker %d", self._broker.id)
            await self._admitted.wait()
        self.configs.warn_of_min_isr(self._loader.image)

    async def check_registered(self, broker: BrokerId, epoch: int) -> None:
        """Check that a broker is registered in this epoch.

        The epoch in a broker's request must be its latest one.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED, no such broker is registered; STALE_BROKER_EPOCH, it is
                registered in another epoch; KAFKA_STORAGE_ERROR, the metadata store cannot be read.
        """
        try:
            await check_registered(self._loader, broker, epoch)
        except StoreError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def note_isolation(self, isolated: bool) -> None:
        """Store in this broker's registration whether the broker is isolated: it reaches no other broker.

        Return at once: a background task writes to the metadata store. If this broker is the controller and
        is isolated, it also resigns as controller. It takes part in the election of the next controller only
        if no other broker can become controller.
        """
        self._is_isolated = isolated
        if isolated and self.active:
            self._writes.resign()
            self._stepping_down = start_task(self._step_down(), "controller steps down", is_vital=True)
        else:
            self.registration.announce(is_isolated=isolated)
            self._begin_join()

    async def _step_down(self) -> None:
        """Let another broker become the controller, because this one is isolated: it reaches no other broker.

        First register this broker as isolated. Then delete the node ``/controller`` of the metadata store, so
        that another broker can create it.

        If the store cannot be reached, the node stays for the moment. The store deletes it when this broker's
        session with the store ends. If the session continues, the next `_join` deletes the node.
        """
        await self.registration.update(is_isolated=True)
        if self._is_isolated:  # else `_join` may have elected this broker again meanwhile
            with contextlib.suppress(StoreError):
                await self._election.resign()

    def _may_run(self) -> bool:
        """Whether this broker may become the controller.

        An isolated broker may become the controller only if all other running brokers are isolated, too.
        """
        others = (b for b in self._loader.image.brokers.values() if b.id != self._broker.id)
        return not self._is_isolated or all(
            other.is_isolated or other.state is not BrokerState.RUNNING for other in others
        )

    def register_anew(self) -> None:
        """Register in a new broker epoch as soon as the metadata store can be reached.

        The present broker epoch then becomes invalid.
        """
        self.registration.request_new_epoch()
        self._begin_join()

    async def leave(self, timeout_s: float) -> None:
        """Register that this broker shuts down, and wait until other brokers lead its partitions.

        Do not wait for partitions that no other broker can lead. If the metadata store cannot be reached,
        return at once.

        Args:
            timeout_s: time limit. After it, this method returns without an error.
        """
        with contextlib.suppress(TimeoutError, StoreUnavailableError):
            async with asyncio.timeout(timeout_s):
                self._moved.clear()
                await self.registration.update(state=BrokerState.SHUTTING_DOWN)
                while left := leaders_to_move(await self._loader.settled(), self._broker.id):
                    log.info(
                        "broker %d waits for new leaders of %d partitions before it stops",
                        self._broker.id,
                        left,
                    )
                    await self._moved.wait()
                    self._moved.clear()

    async def stop(self) -> None:
        """Stop the controller's tasks.

        The registration stays until this broker's session with the metadata store ends.
        """
        self._is_stopped = True
        while self._cancels:
            self._cancels.pop()()
        self._writes.resign()
        if self._restoring is not None:
            self._restoring.cancel()
        await stop_tasks(self._joining, self._stepping_down)
        await self._balance.stop()
        await self._internal_topics.stop()
        await self.partitions.stop()
        await self._unclean.stop()
        await self.reassignments.stop()
        await self.registration.stop()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._writes.resign()
        elif state is SessionState.CONNECTED:
            self._begin_join()

    def _on_image(self, delta: ImageDelta) -> None:
        self._note_admission(delta.after)
        self._moved.set()
        self.partitions.on_image(delta)
        self.reassignments.on_image(delta)
        self._internal_topics.on_image(delta)
        if self._store.state is SessionState.CONNECTED and self._lacks_nodes(delta):
            self._begin_join()

    def _lacks_nodes(self, delta: ImageDelta) -> bool:
        """Whether `delta.after` shows that the metadata store lacks a node that this broker must create.

        - Every broker must create its registration node and, if there is no controller, the controller's
          node.
        - The controller must create its node, and the node of the cluster's ``min.insync.replicas``
          (`ConfigControl.must_settle_min_isr`).
        """
        image = delta.after
        if image.controller_id == NO_BROKER or self._broker.id not in image.brokers:
            return True
        return self._writes.is_controller and (
            image.controller_id != self._broker.id or self.configs.must_settle_min_isr(delta)
        )

    def _on_node(self, event: Event, path: str) -> None:
        """Start a timer that restores a deleted node of the metadata store. Do nothing for other events.

        This applies only to the nodes in `PERMANENT`. A user who removes the whole cluster deletes many
        nodes. The delay lets this deletion end first.
        """
        if event is Event.DELETED and path in PERMANENT and self._restoring is None:
            self._restoring = asyncio.get_running_loop().call_later(_RESTORE_AFTER, self._restore)

    def _restore(self) -> None:
        self._restoring = None
        if self._store.state is SessionState.CONNECTED:  # else that is when it is done
            self._begin_join()

    def _note_admission(self, image: ClusterImage) -> None:
        # An image can have the admission of this broker, and not its node any more: the session has ended.
        epoch, admission = self.registration.epoch, image.admitted.get(self._broker.id)
        if admission is not None and admission.epoch == epoch:
            self.registration.admitted(epoch)
            self._admitted.set()

    def _begin_join(self) -> None:
        if self._is_stopped:
            return
        self._must_join = True
        if self._joining is None or self._joining.done():
            self._joining = start_task(self._join_again(), "controller election", is_vital=True)

    async def _join_again(self) -> None:
        delay = _FIRST_RETRY
        while self._must_join:
            self._must_join = False
            try:
                await self._join()
            except (StoreUnavailableError, NoNodeError, DamagedNodeError, KafkaError) as error:
                log.warning("broker %d cannot register now, and will try again: %s", self._broker.id, error)
                if self._store.state is SessionState.CONNECTED:  # else that is when it begins again
                    self._must_join = True
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, _LAST_RETRY)
            except StoreError as error:
                log.error("broker %d cannot register again: %s", self._broker.id, error)
                if self._on_failure is not None:
                    self._on_failure(error)

    async def _join(self) -> None:
        await self._put_back()
        await self.registration.register()
        elected_at = None
        if self._may_run() and await self._election.run():
            elected_at = self._view.clock.monotonic()
            log.info("broker %d is the controller, in epoch %d", self._broker.id, self._writes.epoch)
        if not self._may_run():  # it became isolated during the election, or `_step_down` could not resign
            await self._election.resign()
        if self._writes.is_controller:
            await self.configs.settle_min_isr()
            self.partitions.begin()
            await self.partitions.settled()
            if not self._writes.is_controller:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the partitions could not be settled")
            self.reassignments.resume()
            self._internal_topics.begin()
            if elected_at is not None:
                log.info(
                    "broker %d has taken over as the controller: all partitions settled in %.2f s",
                    self._broker.id,
                    self._view.clock.monotonic() - elected_at,
                )
        await self._loader.settled()

    async def _put_back(self) -> None:
        """Restore deleted nodes of the metadata store from this broker's image.

        If the image lacks the value of a node, leave the node to the other brokers for some time.

        Raises:
            KafkaError: NOT_CONTROLLER, a node is missing that another broker may restore.
        """
        now = asyncio.get_running_loop().time()
        waited = 0.0 if self._missing_since is None else now - self._missing_since
        image = self._loader.image
        is_final = waited >= _OTHERS_PATIENCE or not image.brokers.keys() - {self._broker.id}
        left = await put_back(self._store, image, is_final=is_final)
        if not left:
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = now
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            f"{', '.join(left)} is missing in the metadata store: other brokers may know more of it",
        )
