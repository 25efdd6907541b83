-- The tables of a chain. search_path names the schema in which they are created.

CREATE TABLE chaingql_state (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL,                        -- version of the tables: number of the last migration that ran
    pruned   text COLLATE "C" NOT NULL DEFAULT ''     -- cursor of the newest block that was pruned
);

INSERT INTO chaingql_state (version) VALUES (0);

-- Cursors are compared byte by byte, regardless of the database's collation. Other characters
-- are rejected, because readers could not continue from a cursor that contains them.
CREATE TABLE blocks (
    cursor    text COLLATE "C" PRIMARY KEY
              CHECK (cursor <> '' AND octet_length(cursor) <= 64 AND ltrim(cursor, '0123456789abcdefm-') = ''),
    workchain integer NOT NULL,
    shard     bigint NOT NULL,                        -- the 64 bits of the shard prefix, as a signed number
    seq_no    bigint NOT NULL CHECK (seq_no BETWEEN 0 AND 4294967295),
    hash      bytea NOT NULL CHECK (octet_length(hash) = 32),
    gen_time  timestamptz NOT NULL CHECK (isfinite(gen_time))
);

-- text_pattern_ops sorts like COLLATE "C", but does not match the primary key. The planner
-- therefore cannot scan the primary key for the pages that these indexes serve.
CREATE INDEX blocks_by_workchain ON blocks (workchain, cursor text_pattern_ops);
CREATE INDEX blocks_by_shard ON blocks (workchain, shard, cursor text_pattern_ops);

-- balance < 1e78 excludes NaN and infinity, because PostgreSQL sorts them above every other number.
CREATE TABLE accounts (
    workchain integer NOT NULL,
    id        bytea NOT NULL CHECK (octet_length(id) = 32),
    balance   numeric NOT NULL CHECK (balance >= 0 AND balance < 1e78 AND balance = trunc(balance)),
    PRIMARY KEY (workchain, id)
);
