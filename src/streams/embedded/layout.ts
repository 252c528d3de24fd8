/**
 * The tables of the log file, layout version 2 or 3. `application_id` says whose file it is, `user_version` which
 * layout.
 *
 * Offsets of a partition are contiguous; `begin` and `end` outlive the records, so a trimmed log still knows where it
 * stands. Records below `begin` may linger until trimming has caught up: no reader sees them.
 *
 * `records.headers` is NULL without headers, else their concatenation, each:
 *
 *   u32 LE  n    bytes of the name      u32 LE  v    bytes of the value
 *   n bytes      name, UTF-8            v bytes      value
 *
 * An erased record (erase.ts) is a row with timestamp −1 and nothing else. A log that has one is of layout version 3;
 * all else of it is version 2.
 *
 * `records.checksum` is the CRC-32 of the record and its place (records.ts); NULL where a version 1 wrote it, and then
 * nothing is checked. Version 1 has no such column and is else the same: it is added when the log is opened.
 */
export const APPLICATION_ID = 0x434e_544f // "CNTO"
export const LAYOUT_VERSION = 2
/** From the first erased record on, which older versions would take for a record without key and value. */
export const ERASED_VERSION = 3

/** Upgrades a log of layout version 1 to version 2. SQLite adds the column without rewriting rows. */
export const UPGRADE = 'ALTER TABLE records ADD COLUMN checksum INTEGER; PRAGMA user_version = 2'

/** Records come in two sizes, ~200 B and ~900 kB; 8 kB pages cost neither much. Set before the first table exists. */
export const PAGE_SIZE = 8192

export const LAYOUT = `
CREATE TABLE topics (
  id          INTEGER PRIMARY KEY,
  name        TEXT NOT NULL UNIQUE,
  partitions  INTEGER NOT NULL,
  config      TEXT NOT NULL            -- JSON object, names and values as in Kafka
) STRICT;

CREATE TABLE partitions (
  topic       INTEGER NOT NULL REFERENCES topics (id),
  partition   INTEGER NOT NULL,
  "begin"     INTEGER NOT NULL,
  "end"       INTEGER NOT NULL,
  PRIMARY KEY (topic, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
  topic       INTEGER NOT NULL,
  partition   INTEGER NOT NULL,
  "offset"    INTEGER NOT NULL,
  timestamp   INTEGER NOT NULL,        -- ms since the epoch
  key         BLOB,
  headers     BLOB,
  value       BLOB,
  checksum    INTEGER,
  PRIMARY KEY (topic, partition, "offset")
) STRICT, WITHOUT ROWID;

CREATE TABLE offsets (                 -- committed input offsets
  group_id    TEXT NOT NULL,
  topic       TEXT NOT NULL,
  partition   INTEGER NOT NULL,
  "offset"    INTEGER NOT NULL,
  PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE claims (                  -- the lock of an input partition: only the latest epoch may write
  group_id    TEXT NOT NULL,
  topic       TEXT NOT NULL,
  partition   INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  owner       TEXT NOT NULL,           -- for people: process and time of the claim
  PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
  group_id    TEXT NOT NULL,
  topic       TEXT NOT NULL,
  generation  INTEGER NOT NULL,
  PRIMARY KEY (group_id, topic)
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
  group_id    TEXT NOT NULL,
  topic       TEXT NOT NULL,
  member      TEXT NOT NULL,
  seniority   INTEGER NOT NULL,        -- generation in which it joined
  expires     INTEGER NOT NULL,        -- ms since the epoch
  assigned    TEXT NOT NULL,           -- JSON array of partitions
  PRIMARY KEY (group_id, topic, member)
) STRICT, WITHOUT ROWID;
`
