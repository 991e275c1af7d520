"""What a cluster agrees on: the metadata store, its nodes, and the immutable image made of them."""

from barnabas.metadata.image import ClusterImage, ImageDelta
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.opening import open_store
from barnabas.metadata.store import MetadataStore

__all__ = ["ClusterImage", "ImageDelta", "MetadataLoader", "MetadataStore", "open_store"]
