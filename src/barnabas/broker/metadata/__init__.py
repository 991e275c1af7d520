"""The state that a cluster agrees on: the metadata store, its nodes, and the immutable image of them."""

from barnabas.broker.metadata.image import ClusterImage, ImageDelta
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.opening import open_store
from barnabas.broker.metadata.store import MetadataStore

__all__ = ["ClusterImage", "ImageDelta", "MetadataLoader", "MetadataStore", "open_store"]
