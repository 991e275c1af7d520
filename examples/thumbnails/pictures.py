"""Pictures in the PPM format (P6): makes them and scales them down, without a library.

A real service would call a library in C for this. Such a library can crash on a damaged picture, and takes
the process with it. So does `thumbnail`.
"""

from __future__ import annotations

import os
import random
import re
import signal

_HEADER = re.compile(rb"P6\s+(\d+)\s+(\d+)\s+255\s")
#: width of thumbnails, in pixels
_WIDTH = 32


class NotAPicture(ValueError):
    """The bytes are not a PPM picture."""


def draw(seed: int, width: int = 160, height: int = 120) -> bytes:
    """Return a picture: a colour gradient."""
    red, green, blue = random.Random(seed).choices(range(256), k=3)
    pixels = bytearray()
    for y in range(height):
        shade = y * 255 // height
        pixels += bytes((red, (green + shade) % 256, (blue + shade) % 256)) * width
    return b"P6 %d %d 255\n%b" % (width, height, bytes(pixels))


def thumbnail(picture: bytes) -> bytes:
    """Return the picture with a width of 32 pixels. A damaged picture ends the process.

    Raises:
        NotAPicture: the bytes are not a PPM picture.
    """
    header = _HEADER.match(picture)
    if header is None:
        raise NotAPicture
    width, height = int(header[1]), int(header[2])
    pixels = picture[header.end() :]
    if len(pixels) < width * height * 3:  # the library would read beyond the end of its memory
        os.kill(os.getpid(), signal.SIGSEGV)
    step = max(1, width // _WIDTH)
    small = [pixels[(y * width + x) * 3 :][:3] for y in range(0, height, step) for x in range(0, width, step)]
    return b"P6 %d %d 255\n%b" % (-(-width // step), -(-height // step), b"".join(small))
