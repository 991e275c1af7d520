"""Groups of the consumer protocol (KIP-848): the coordinator assigns, each member follows at its own pace."""
