"""Random PNG and JPEG files against Pillow: all colour types, depths and orders of PNG, all subsamplings, scans and turns of JPEG."""
import io
import struct
import unittest
import zlib

import numpy as np
from PIL import Image, ImageOps

from probe import Made, ProbeTest

GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
DEPTHS = {GRAY: [1, 2, 4, 8, 16], RGB: [8, 16], PALETTE: [1, 2, 4, 8], GRAY_ALPHA: [8, 16], RGBA: [8, 16]}
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
PASSES = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]  # Adam7: rows, columns


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def exif_of(draws, orientation):
    """A TIFF block with an orientation among other tags, in either byte order."""
    little = draws.random() < 0.5
    order = "<" if little else ">"
    entries = [(0x010F, 2, 4, b"abc\0"), (0x0112, *orientation_entry(draws, orientation, order)), (0x0128, 3, 1, struct.pack(order + "HH", 2, 0))]
    if draws.random() < 0.2:
        entries = entries[1:2]
    body = b"".join(struct.pack(order + "HHI", tag, kind, count) + value for tag, kind, count, value in entries)
    pad = int(draws.choice([0, 0, 2, 10]))
    head = (b"II*\0" if little else b"MM\0*") + struct.pack(order + "I", 8 + pad) + bytes(pad)
    return head + struct.pack(order + "H", len(entries)) + body + bytes(4)


def orientation_entry(draws, orientation, order):
    if draws.random() < 0.8:
        return 3, 1, struct.pack(order + "HH", orientation, 0)
    kind, form = [(4, "I"), (1, "Bxxx"), (8, "hxx"), (9, "i"), (3, "HH"), (6, "bxxx"), (13, "I"), (11, "f")][draws.integers(0, 8)]
    if form == "HH":
        return 3, 2, struct.pack(order + "HH", orientation, orientation)
    return kind, 1, struct.pack(order + form, orientation)


def xmp_of(draws, orientation):
    said = [f' tiff:Orientation="{orientation}"', f"><tiff:Orientation>{orientation}</tiff:Orientation"][draws.integers(0, 2)]
    return f'<?xpacket begin=""?><x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description{said}/></rdf:RDF></x:xmpmeta>'.encode()


def filtered(draws, rows, step):
    """Rows of bytes, each behind a filter of its own."""
    out, before = bytearray(), np.zeros(rows.shape[1], np.uint8)
    for row in rows:
        kind = int(draws.integers(0, 5))
        left = np.concatenate([np.zeros(step, np.uint8), row[:-step]]) if row.size > step else np.zeros(row.size, np.uint8)
        corner = np.concatenate([np.zeros(step, np.uint8), before[:-step]]) if row.size > step else np.zeros(row.size, np.uint8)
        a, b, c = left.astype(int), before.astype(int), corner.astype(int)
        p = a + b - c
        paeth = np.where((abs(p - a) <= abs(p - b)) & (abs(p - a) <= abs(p - c)), a, np.where(abs(p - b) <= abs(p - c), b, c))
        guess = [0, a, b, (a + b) // 2, paeth][kind]
        out += bytes([kind]) + ((row.astype(int) - guess) % 256).astype(np.uint8).tobytes()
        before = row
    return bytes(out)


def packed(draws, samples, depth):
    """Samples [rows, columns, channels] as a PNG's rows."""
    rows, columns, channels = samples.shape
    if rows == 0 or columns == 0:
        return b""
    flat = samples.reshape(rows, columns * channels)
    if depth == 16:
        data = flat.astype(">u2").view(np.uint8).reshape(rows, -1)
    elif depth == 8:
        data = flat.astype(np.uint8)
    else:
        bits = np.unpackbits(flat.astype(np.uint8)[..., None], axis=2)[..., 8 - depth:].reshape(rows, -1)
        data = np.packbits(bits, axis=1)
    return filtered(draws, data, max(1, channels * depth // 8))


def png_of(draws):
    color = int(draws.choice(list(DEPTHS)))
    depth = int(draws.choice(DEPTHS[color]))
    height, width = (int(n) for n in draws.integers(1, 40, 2))
    entries = int(draws.integers(1, 2 ** depth + 1)) if color == PALETTE else 2 ** depth
    samples = draws.integers(0, entries, (height, width, CHANNELS[color]))
    interlaced = draws.random() < 0.4
    if interlaced:
        data = b"".join(packed(draws, samples[r::rs, c::cs], depth) for r, rs, c, cs in PASSES)
    else:
        data = packed(draws, samples, depth)
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced)))]
    if draws.random() < 0.3:
        parts.append(chunk(b"gAMA", struct.pack(">I", int(draws.choice([45455, 100000, 22000])))))
    if draws.random() < 0.3:
        parts.append(chunk(b"sRGB", b"\0"))
    if color == PALETTE or (color in (RGB, RGBA) and draws.random() < 0.1):
        parts.append(chunk(b"PLTE", draws.bytes(3 * entries if color == PALETTE else 6)))
    if draws.random() < 0.4 and color in (GRAY, RGB, PALETTE):
        clear = draws.bytes(int(draws.integers(1, entries + 1))) if color == PALETTE else \
            b"".join(struct.pack(">H", int(v)) for v in samples[0, 0])
        parts.append(chunk(b"tRNS", clear))
    late = []
    if draws.random() < 0.4:
        (parts if draws.random() < 0.7 else late).append(chunk(b"eXIf", exif_of(draws, int(draws.integers(0, 10)))))
    if draws.random() < 0.3:
        text, packs = xmp_of(draws, int(draws.integers(0, 10))), draws.random() < 0.4
        text = b"XML:com.adobe.xmp\0" + (b"\1" if packs else b"\0") + b"\0en\0\0" + (zlib.compress(text) if packs else text)
        (parts if draws.random() < 0.7 else late).append(chunk(b"iTXt", text))
    if draws.random() < 0.15:  # as ImageMagick writes EXIF
        block = b"Exif\0\0" + exif_of(draws, int(draws.integers(0, 10)))
        digits = block.hex()
        text = f"\nexif\n{len(block):8}\n" + "\n".join(digits[i:i + 72] for i in range(0, len(digits), 72)) + "\n"
        parts.append(chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text.encode())))
    if draws.random() < 0.2:
        parts.append(chunk(b"tEXt", b"Comment\0words"))
    stream = zlib.compress(data, int(draws.integers(0, 10)))
    cut = int(draws.integers(1, len(stream)))
    parts += [chunk(b"IDAT", stream[:cut]), chunk(b"IDAT", b""), chunk(b"IDAT", stream[cut:])] if draws.random() < 0.4 else [chunk(b"IDAT", stream)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts + late) + chunk(b"IEND", b"")


def jpeg_of(draws):
    height, width = (int(n) for n in draws.integers(1, 70, 2))
    mode = str(draws.choice(["L", "RGB", "RGB", "RGB", "RGB", "CMYK"], p=[0.2, 0.25, 0.25, 0.15, 0.1, 0.05]))
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    low = draws.integers(0, 256, (height // 6 + 2, width // 6 + 2, channels), dtype=np.uint8)
    pixels = low.repeat(6, 0).repeat(6, 1)[:height, :width]
    options = {"quality": int(draws.integers(5, 101)), "progressive": bool(draws.random() < 0.4), "optimize": bool(draws.random() < 0.4)}
    if mode == "RGB":
        options["keep_rgb"] = bool(draws.random() < 0.15)
        options["subsampling"] = 0 if options["keep_rgb"] else int(draws.integers(0, 3))
    if draws.random() < 0.3:
        options["restart_marker_blocks"] = int(draws.integers(1, 9))
    if draws.random() < 0.5:
        options["exif"] = b"Exif\0\0" + exif_of(draws, int(draws.integers(0, 10)))
    if draws.random() < 0.2:
        options["comment"] = b"words"
    if draws.random() < 0.2:
        options["icc_profile"] = draws.bytes(300)
    if draws.random() < 0.2:
        options["dpi"] = (72, 300)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels, mode).save(file, "JPEG", **options)
    content = file.getvalue()
    if draws.random() < 0.3:
        block = b"http://ns.adobe.com/xap/1.0/\0" + xmp_of(draws, int(draws.integers(0, 10)))
        segment = b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block
        behind = 4 + int.from_bytes(content[4:6], "big") if draws.random() < 0.5 else 2  # before EXIF or behind the first segment
        content = content[:behind] + segment + content[behind:]
    if draws.random() < 0.3 and content.find(b"\xff\xe0") == 2:
        length = int.from_bytes(content[4:6], "big")
        content = content[:2] + content[4 + length:]  # without JFIF
    return content + [b"", b"", bytes(9), b"\xff\xd9"][draws.integers(0, 4)], mode


def as_pillow(path, jpeg):
    """Gray of a coloured JPEG is its luma, as Pillow decodes it on demand."""
    with Image.open(path) as image:
        deep = image.mode.startswith("I")
        image.load()
        upright = ImageOps.exif_transpose(image)
    if deep:  # 16 bits: the upper 8
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    gray = upright.convert("L")
    if jpeg:
        with Image.open(path) as image:
            image.draft("L", image.size)
            gray = ImageOps.exif_transpose(image).convert("L")
    return {"rgb": np.asarray(upright.convert("RGB")), "gray": np.asarray(gray)[..., None]}


class RandomPictures(ProbeTest):
    def test_png(self):
        def make(folder, seed):
            path = folder / f"{seed}.png"
            path.write_bytes(png_of(np.random.default_rng(6000 + seed)))
            return Made({"kind": "picture", "path": path}, as_pillow(path, False))

        self.check_random(make)

    def test_jpeg(self):
        def make(folder, seed):
            path = folder / f"{seed}.jpg"
            content, mode = jpeg_of(np.random.default_rng(7000 + seed))
            path.write_bytes(content)
            return Made({"kind": "picture", "path": path}, as_pillow(path, True), refused=("CMYK",) if mode == "CMYK" else ())

        self.check_random(make)


if __name__ == "__main__":
    unittest.main()
