"""Byte corpora: memory-mapped files, the last part of each held out, streamed to the trainer in lanes."""
import glob
import os

import numpy as np


class Corpus:
    """All *.txt files of the given folders. The last `holdout` (a fraction) of each file is never trained on.

    names: file names without .txt; train, val: the two parts of each, uint8 arrays.
    """

    def __init__(self, folders, holdout=0.05, exclude=()):
        self.names, self.train, self.val = [], [], []
        for folder in folders:
            for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
                name = os.path.splitext(os.path.basename(path))[0]
                if name in exclude:
                    continue
                assert name not in self.names, f"two files named {name}"
                data = np.memmap(path, dtype=np.uint8, mode="r")
                cut = len(data) - int(len(data) * holdout)
                self.names.append(name)
                self.train.append(data[:cut])
                self.val.append(data[cut:])
        if not self.names:
            raise SystemExit(f"Expected *.txt files in {', '.join(folders)} and found none; see docs/data.md.")

    def size(self):
        """-> training bytes, held-out bytes"""
        return sum(map(len, self.train)), sum(map(len, self.val))


class Lanes:
    """`batch` readers. Each reads windows of `length` bytes, on through one file, and jumps to a random place
    with probability `jump` per window (1.0: independent random windows) or at the file's end."""

    def __init__(self, corpus, batch, length, jump, seed):
        self.corpus, self.batch, self.length, self.jump = corpus, batch, length, jump
        self.rng = np.random.RandomState(seed)
        starts = np.array([max(0, len(text) - length - 1) for text in corpus.train], float)
        assert starts.any(), f"no text is longer than a window of {length} bytes"
        self.chance = starts / starts.sum()  # of each file: every byte is as likely a start
        self.at = [None] * batch  # [file, offset] of each lane's next window

    def next(self):
        """-> x [B,T], y [B,T] (the bytes that follow), fresh [B]: True where the lane jumped and starts empty."""
        T, train = self.length, self.corpus.train
        windows, fresh = np.empty((self.batch, T + 1), np.uint8), np.zeros(self.batch, bool)
        for lane in range(self.batch):
            u = self.rng.rand()
            at = self.at[lane]
            if at is None or u < self.jump or at[1] + T + 1 > len(train[at[0]]):
                file = int(self.rng.choice(len(self.chance), p=self.chance))
                at = [file, int(self.rng.randint(0, len(train[file]) - T))]
                fresh[lane] = True
            file, offset = at
            windows[lane] = train[file][offset:offset + T + 1]
            self.at[lane] = [file, offset + T]
        windows = windows.astype(np.int64)
        return windows[:, :-1], windows[:, 1:], fresh

    def state_dict(self):
        return {"rng": self.rng.get_state(), "at": self.at}

    def load_state_dict(self, stored):
        self.rng.set_state(stored["rng"])
        self.at = stored["at"]
