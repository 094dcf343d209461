"""Puts sound bytes into corpus/: what a broker wrote (wire/tests/golden), behind the decisions that
lead each target to them."""
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent.parent / "wire/tests/golden"
FILES = [
    b"0\n2\norders 0 1234\norders 1 99\n",
    b"0\n2\n0 0\n5 77\n",
    b"version=1\nnode.id=1\ncluster.id=abc\\:d\ndirectory.id=ZmFyc3Bhbi10ZXN0cy0xMg\n",
    b"version: 0\ntopic_id: ZmFyc3Bhbi10ZXN0cy0xMg",
    b'{"version":0,"brokerEpoch":7}',
    b"\0\0\0\1" + b"\0" * 7 + b"\5" + b"\0\1" + b"\0" * 36,
    b"\0" * 68,
]


def put(target, name, content):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def piece(content):
    return len(content).to_bytes(2, "big") + content


for path in sorted(GOLDEN.iterdir()):
    content = path.read_bytes()
    if path.suffix == ".bin":
        version = int(path.stem.removeprefix("fetch-v"))
        head = 9 if version >= 12 else 8
        put("fetch_response", path.name, bytes([version, head, 0]) + content)
        answers = (bytes([0, 0]) + piece(content[head:])) * 4
        put("link", path.name, bytes([0, version - 4]) + answers)
    elif path.suffix == ".log":
        half = content[: len(content) // 2 + 30]
        for flags in range(4):
            put("batches", f"{path.name}-{flags}", bytes([flags, 0]) + content)
        for flags in range(2):
            whole = bytes([flags, 0, 0]) + piece(content)
            put("recovery", f"{path.name}-{flags}", whole)
            put("recovery", f"{path.name}-{flags}-two",
                bytes([flags, 0, 0]) + piece(half) + bytes([4]) + piece(content))
for kind, content in enumerate(FILES):
    put("files", str(kind), bytes([kind]) + content)
put("requests", "produce", bytes([0, 0, 0, 9]) + piece(b"\0" * 40) + b"\0")
