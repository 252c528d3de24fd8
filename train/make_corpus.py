#!/usr/bin/env python3
"""Builds the larger part of the demo model's training texts from the Project Gutenberg files of a git mirror.

    make_corpus.py <git dir of github.com/RU-ECE/ECE451-Parallel> <out folder> [--commit C]

Only works in English, in the public domain by their authors' deaths and their dates of publication (before 1929).
What changes: the Project Gutenberg header, licence and producer notes go, CRLF becomes LF, Latin-1 becomes
UTF-8, byte-order marks go. The works themselves stay as they are. Writes a README.md with the sources.
"""
import argparse
import os
import re
import subprocess

COMMIT = "c58dca3a6abedd8041057571c247e9a393cc3b4d"  # the one docs/data.md names

BOOKS = [  # path under data/ in the mirror, name here, title, author, translator
    ("books/1184-0.txt", "dumas-montecristo", "The Count of Monte Cristo", "Alexandre Dumas (1802-1870)", "anonymous, 1846"),
    ("books/145-0.txt", "eliot-middlemarch", "Middlemarch", "George Eliot (1819-1880)", ""),
    ("books/203-0.txt", "stowe-cabin", "Uncle Tom's Cabin", "Harriet Beecher Stowe (1811-1896)", ""),
    ("books/205-0.txt", "thoreau-walden", "Walden", "Henry David Thoreau (1817-1862)", ""),
    ("books/219-0.txt", "conrad-darkness", "Heart of Darkness", "Joseph Conrad (1857-1924)", ""),
    ("books/244-0.txt", "doyle-scarlet", "A Study in Scarlet", "Arthur Conan Doyle (1859-1930)", ""),
    ("books/25344-0.txt", "hawthorne-letter", "The Scarlet Letter", "Nathaniel Hawthorne (1804-1864)", ""),
    ("books/2591-0.txt", "grimm-taylor", "Grimms' Fairy Tales", "Jacob and Wilhelm Grimm (d. 1863, 1859)", "Edgar Taylor (d. 1839), Marian Edwardes, 1905"),
    ("books/2600-0.txt", "tolstoy-war", "War and Peace", "Leo Tolstoy (1828-1910)", "Louise and Aylmer Maude (d. 1939, 1938), 1922"),
    ("books/27942-0.txt", "mill-logic", "A System of Logic", "John Stuart Mill (1806-1873)", ""),
    ("books/28054-0.txt", "dostoyevsky-karamazov", "The Brothers Karamazov", "Fyodor Dostoyevsky (1821-1881)", "Constance Garnett (d. 1946), 1912"),
    ("books/2852-0.txt", "doyle-hound", "The Hound of the Baskervilles", "Arthur Conan Doyle (1859-1930)", ""),
    ("books/308-0.txt", "jerome-boat", "Three Men in a Boat", "Jerome K. Jerome (1859-1927)", ""),
    ("books/3176-0.txt", "twain-innocents", "The Innocents Abroad", "Mark Twain (1835-1910)", ""),
    ("books/35-0.txt", "wells-time", "The Time Machine", "H. G. Wells (1866-1946)", ""),
    ("books/36-0.txt", "wells-war", "The War of the Worlds", "H. G. Wells (1866-1946)", ""),
    ("books/41-0.txt", "irving-hollow", "The Legend of Sleepy Hollow", "Washington Irving (1783-1859)", ""),
    ("books/43-0.txt", "stevenson-jekyll", "Strange Case of Dr Jekyll and Mr Hyde", "R. L. Stevenson (1850-1894)", ""),
    ("books/46-0.txt", "dickens-carol", "A Christmas Carol", "Charles Dickens (1812-1870)", ""),
    ("books/6688-0.txt", "eliot-mill", "The Mill on the Floss", "George Eliot (1819-1880)", ""),
    ("books/74-0.txt", "twain-sawyer", "The Adventures of Tom Sawyer", "Mark Twain (1835-1910)", ""),
    ("books/76-0.txt", "twain-finn", "Adventures of Huckleberry Finn", "Mark Twain (1835-1910)", ""),
    ("books/766-0.txt", "dickens-copperfield", "David Copperfield", "Charles Dickens (1812-1870)", ""),
    ("books/829-0.txt", "swift-gulliver", "Gulliver's Travels", "Jonathan Swift (1667-1745)", ""),
    ("books/940-0.txt", "cooper-mohicans", "The Last of the Mohicans", "James Fenimore Cooper (1789-1851)", ""),
    ("books/98-0.txt", "dickens-cities", "A Tale of Two Cities", "Charles Dickens (1812-1870)", ""),
    ("books/Anne-of-Green-Gables.txt", "montgomery-anne", "Anne of Green Gables", "L. M. Montgomery (1874-1942)", ""),
    ("books/Great_Expectations_CharlesDickens.txt", "dickens-expectations", "Great Expectations", "Charles Dickens (1812-1870)", ""),
    ("books/Pride_and_Prejudice_JaneAusten.txt", "austen-pride", "Pride and Prejudice", "Jane Austen (1775-1817)", ""),
    ("books/The_Conduct_of_Life_RalphWaldoEmerson.txt", "emerson-conduct", "The Conduct of Life", "Ralph Waldo Emerson (1803-1882)", ""),
    ("pg1260.txt", "bronte-eyre", "Jane Eyre", "Charlotte Bronte (1816-1855)", ""),
    ("pg128.txt", "lang-nights", "The Arabian Nights Entertainments", "Andrew Lang (1844-1912)", ""),
    ("pg1497.txt", "plato-republic", "The Republic", "Plato", "Benjamin Jowett (d. 1893)"),
    ("pg174.txt", "wilde-dorian", "The Picture of Dorian Gray", "Oscar Wilde (1854-1900)", ""),
    ("pg2298.txt", "ball-astronomers", "Great Astronomers", "Robert S. Ball (1840-1913)", ""),
    ("pg23.txt", "douglass-narrative", "Narrative of the Life of Frederick Douglass", "Frederick Douglass (1818-1895)", ""),
    ("pg345.txt", "stoker-dracula", "Dracula", "Bram Stoker (1847-1912)", ""),
    ("pg55.txt", "baum-oz", "The Wonderful Wizard of Oz", "L. Frank Baum (1856-1919)", ""),
    ("pg768.txt", "bronte-wuthering", "Wuthering Heights", "Emily Bronte (1818-1848)", ""),
    ("pg815.txt", "tocqueville-america1", "Democracy in America, I", "Alexis de Tocqueville (1805-1859)", "Henry Reeve (d. 1895)"),
    # kept out of training entirely: whole unseen documents for the adaptation measurements
    ("books/11-0.txt", "unseen/carroll-alice", "Alice's Adventures in Wonderland", "Lewis Carroll (1832-1898)", ""),
    ("pg11030.txt", "unseen/jacobs-incidents", "Incidents in the Life of a Slave Girl", "Harriet Jacobs (1813-1897)", ""),
]


def clean(raw):
    """A Project Gutenberg file -> the work in it, UTF-8 bytes. Raises ValueError where its marks are missing."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    text = text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")
    start = re.search(r"^\*\*\* ?START OF.*?\*\*\*[^\n]*\n", text, re.M | re.S)
    end = re.search(r"^(\*\*\* ?END OF|End of (the )?Project Gutenberg)", text, re.M)
    if not start or not end:
        raise ValueError("no Project Gutenberg marks")
    text = text[start.end():end.start()].strip("\n ") + "\n"
    text = re.sub(r"\A(Produced by|This etext was|E-text prepared)[^\n]*\n(?:[^\n]+\n)*\s*", "", text)
    return text.encode("utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("git", help="git directory of the mirror, bare or not")
    parser.add_argument("out", help="folder to write to")
    parser.add_argument("--commit", default=COMMIT, help="commit of the mirror to read (default: the one that was trained on)")
    args = parser.parse_args()

    def git(*command):
        return subprocess.check_output(["git", f"--git-dir={args.git}", *command])

    commit = git("rev-parse", "--verify", f"{args.commit}^{{commit}}").decode().strip()
    present = git("ls-tree", "-r", "--name-only", commit, "data").decode().split("\n")
    os.makedirs(os.path.join(args.out, "unseen"), exist_ok=True)
    rows, total = [], 0
    for path, name, title, author, translator in BOOKS:
        if f"data/{path}" not in present:
            path = f"books/{path}"  # the mirror's commits differ in where the pg*.txt lie
        text = clean(git("show", f"{commit}:data/{path}"))
        with open(os.path.join(args.out, f"{name}.txt"), "wb") as f:
            f.write(text)
        total += len(text)
        rows.append(f"| `{name}.txt` | {len(text)} | {title} | {author} | {translator} | data/{path} |")
    with open(os.path.join(args.out, "README.md"), "w", encoding="utf-8") as f:
        f.write("# Training texts of the demo model\n\nEnglish works in the public domain, published before 1929, from "
                "Project Gutenberg by way of\n"
                f"github.com/RU-ECE/ECE451-Parallel @ {commit[:12]}; built by `make_corpus.py`.\n"
                "The texts under `unseen/` are never trained on.\n\n"
                "| file | bytes | title | author | translator | source path |\n|---|---:|---|---|---|---|\n"
                + "\n".join(rows) + f"\n\n{len(rows)} files, {total} bytes.\n")
    print(len(rows), "files,", total, "bytes")


if __name__ == "__main__":
    main()
