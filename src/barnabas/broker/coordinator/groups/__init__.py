"""The group coordinator: classic groups, consumer groups, share groups, and committed offsets."""
