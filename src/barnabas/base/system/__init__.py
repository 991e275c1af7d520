"""Differences of operating systems, with a fallback for each. No other package tests for the system.

Each line has a module, the functions that it uses if the system has them, and its fallback after "else".
event_loop: uvloop; else the event loop of asyncio, without busy polling.
files: pread, pwritev, sendfile, fdatasync (on macOS F_FULLFSYNC), fsync of a folder, mode bits. Else seeking
    under a lock, no sendfile, fsync, no sync of a folder, the access list of the folder.
locks: flock and POSIX record locks; else the locks of Windows' C runtime.
limits: the limits of a process and a timer of processor time; else the C runtime's bound of open files alone.
signals: SIGTERM and SIGINT by the event loop; else by `signal.signal`, and Ctrl-Break.
processes: sessions and inherited descriptors; else process groups of the console and inherited handles.
orphans: a reaper that kills a process's children when it ends; else children outlive a killed process.
sockets: SO_REUSEADDR; else SO_EXCLUSIVEADDRUSE.

If possible, a module tests for the function that it needs, not for the name of the system. So its fallback
also runs on Linux (`make test-portable`).
"""
