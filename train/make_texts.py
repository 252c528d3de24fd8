#!/usr/bin/env python3
"""Builds the smaller part of the demo model's training texts, data/texts, from clones of four public repositories.

    make_texts.py <folder of clones> <out folder>

The folder holds them bare, as char-rnn.git, nltk.git, ECE451-Parallel.git and datasets.git; train/README.md has the
commands. The commits are those of docs/data.md. What changes: the corpus's title line, the Project Gutenberg header,
licence and producer notes go, CRLF becomes LF, Latin-1 becomes UTF-8, byte-order marks go. Every text is compared with
the sha256 of the one that was trained on; where one differs, nothing more is written and the exit code is 1. Writes a
README.md too, from which the card takes titles and authors.
"""
import argparse
import hashlib
import os
import subprocess

REPOSITORIES = {  # folder: commit
    "char-rnn.git": "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
    "nltk.git": "4dc39fbf6965509f7b74316eff239bd110a03b49",
    "ECE451-Parallel.git": "c58dca3a6abedd8041057571c247e9a393cc3b4d",
    "datasets.git": "3108561330ecfbd16baf51dc89bbaafed2711fb2",
}

# name: repository, path, and the stretches to keep, each from behind one mark to before another (None: the text's end)
ELSEWHERE = {
    "tinyshakespeare": ("char-rnn.git", "data/tinyshakespeare/input.txt", [(None, None)]),
    "voltaire-candide": ("ECE451-Parallel.git", "data/books/French/Candide.txt",
                         [("utilizer pour preparer ce texte.", "End of the Project Gutenberg EBook")]),
    "flaubert-bovary": ("ECE451-Parallel.git", "data/books/French/Madame_Bovary_GustaveFlaubert.txt",
                        [("http://www.ebooksgratuits.com", "End of the Project Gutenberg EBook")]),
    # Two parts in one file, each with its notes.
    "goethe-faust": ("datasets.git", "faust.txt",
                     [(None, "Ende dieses Projekt Gutenberg Etextes"),
                      ("found at the web address http://gutenberg.aol.de/.", None)]),
}

TEXTS = [  # name, sha256, title, author
    ("tinyshakespeare",
     "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
     "Selected plays (\"tiny Shakespeare\")", "William Shakespeare (1564–1616)"),
    ("austen-emma",
     "52b7656e055933a015974a7c1a8a1d2f8e6b88344871cac2bf1578663fb6e0eb",
     "Emma (1816)", "Jane Austen (1775–1817)"),
    ("austen-persuasion",
     "1f952871a2f616233c4ca5ef6f6ad8244e83d456b0cfb93b4ff2fac1c3e23134",
     "Persuasion (1818)", "Jane Austen (1775–1817)"),
    ("austen-sense",
     "103c707eba710b34f3bf4237383fb94ad51d57cef6ccefe17473aee2b8e163a9",
     "Sense and Sensibility (1811)", "Jane Austen (1775–1817)"),
    ("blake-poems",
     "1561c0b6de036d2b34174370dd8541105795d102d12d1fb007639bdc5ff9021e",
     "Songs of Innocence and of Experience; The Book of Thel (1789–1794)", "William Blake (1757–1827)"),
    ("chesterton-ball",
     "d49472fdabaf935c7188700e6e929033638c95d5478ce9a37438557525931a8f",
     "The Ball and the Cross (1909)", "G. K. Chesterton (1874–1936)"),
    ("chesterton-brown",
     "5f9b8f1cf5e79fd3d39422bf8da33036622ff0d51dcaf4849c065ae344a52b69",
     "The Wisdom of Father Brown (1914)", "G. K. Chesterton (1874–1936)"),
    ("chesterton-thursday",
     "08dd8e1d46067843a3e99508c5d5c310a9317adfab404cf8b7cd7eb8fffc9078",
     "The Man Who Was Thursday (1908)", "G. K. Chesterton (1874–1936)"),
    ("melville-moby_dick",
     "90ca1bdb233ac6b4350736b97d5165f0fd170e798b97ffc0049f555be8929eff",
     "Moby-Dick; or, The Whale (1851)", "Herman Melville (1819–1891)"),
    ("milton-paradise",
     "6903a1bb8db8cb5639ad56c7483cb2c87be17e5c3d2894570ffa7e8f73e4aa45",
     "Paradise Lost (1667)", "John Milton (1608–1674)"),
    ("shakespeare-caesar",
     "b4e616a3d020ad25a1df538612151a81ee2f63a2330ec3ada5ad56893a489e0a",
     "The Tragedie of Julius Caesar (First Folio spelling)", "William Shakespeare (1564–1616)"),
    ("shakespeare-hamlet",
     "93c9b10073daea62009709e40ae18d2a6569bd1c458f3b2e0b8f0d013d688466",
     "The Tragedie of Hamlet (First Folio spelling)", "William Shakespeare (1564–1616)"),
    ("shakespeare-macbeth",
     "b4476e84f329c12a2a4ad3c9af0e7a7acb196d49ed7868705b231f729ee1bcb3",
     "The Tragedie of Macbeth (First Folio spelling)", "William Shakespeare (1564–1616)"),
    ("whitman-leaves",
     "1f96b4866165c3cc754bc598ca7808bbd2017d312d1dc50d892fae9fdbf0c6c8",
     "Leaves of Grass (1855; late edition)", "Walt Whitman (1819–1892)"),
    ("voltaire-candide",
     "364cdd4cddde7965b747b67a604cc220da0670c7b6e5519e76ca5098a7924de3",
     "Candide (1759; Beuchot edition, Firmin Didot, vol. XXXIII), French",
     "Voltaire (1694–1778), notes by A. Beuchot (1773–1851)"),
    ("flaubert-bovary",
     "f6e47b26f7ab68e815cf1b7ffca85e10205f7c4f853eec44021ee9d560fb54e8",
     "Madame Bovary (1857), French", "Gustave Flaubert (1821–1880)"),
    ("goethe-faust",
     "4eadca93cd9928986eb4803b703516b88c0375e0268d3a8e7ea5b58a4875ccd9",
     "Faust, erster und zweiter Teil (1808, 1832), German", "Johann Wolfgang von Goethe (1749–1832)"),
]


def plain(raw):
    """Bytes of a source file -> text, LF line ends."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def keep(text, stretches):
    """The stretches of a text, joined and ended by line ends. Raises ValueError where a mark is missing."""
    kept = []
    for behind, before in stretches:
        start = text.index(behind) + len(behind) if behind else 0
        end = text.index(before, start) if before else len(text)
        kept.append(text[start:end].strip("\n"))
    return "\n\n\n\n".join(kept) + "\n"


def source(name):
    """-> repository, path, stretches"""
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    # The NLTK corpus: a title line, then the work; one text has Project Gutenberg's notes behind it.
    end = "End of Project Gutenberg's" if name == "chesterton-ball" else None
    return "nltk.git", f"nltk_data/corpora/gutenberg/{name}.txt", [("\n", end)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", help="folder of the four clones")
    parser.add_argument("out", help="folder to write to")
    args = parser.parse_args()

    os.makedirs(args.out, exist_ok=True)
    rows, total = [], 0
    for name, expected, title, author in TEXTS:
        repository, path, stretches = source(name)
        git_dir = os.path.join(args.clones, repository)
        raw = subprocess.check_output(["git", f"--git-dir={git_dir}", "show", f"{REPOSITORIES[repository]}:{path}"])
        data = keep(plain(raw), stretches).encode("utf-8")
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise SystemExit(f"{name}: expected sha256 {expected}, got {found} from {repository}, {path}.")
        with open(os.path.join(args.out, f"{name}.txt"), "wb") as f:
            f.write(data)
        total += len(data)
        rows.append(f"| `{name}.txt` | {len(data)} | {title} | {author} |")
    with open(os.path.join(args.out, "README.md"), "w", encoding="utf-8") as f:
        f.write("# Training texts of the demo model\n\nWorks in the public domain; docs/data.md has their sources.\n"
                "Built by `make_texts.py`.\n\n| file | bytes | title | author |\n|---|---:|---|---|\n" + "\n".join(rows)
                + f"\n\n{len(rows)} files, {total} bytes.\n")
    print(len(rows), "files,", total, "bytes")


if __name__ == "__main__":
    main()
