-- What a chain is kept in. The schema is the search_path's.

CREATE TABLE chaingql_state (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL,                        -- of these tables: the last migration that ran
    pruned   text COLLATE "C" NOT NULL DEFAULT ''     -- cursor of the newest block that was dropped
);

INSERT INTO chaingql_state (version) VALUES (0);

-- Cursors compare byte by byte, whatever the database's collation.
CREATE TABLE blocks (
    cursor    text COLLATE "C" PRIMARY KEY CHECK (cursor <> ''),
    workchain integer NOT NULL,
    shard     bigint NOT NULL,                        -- the prefix's 64 bits, as a signed number
    seq_no    bigint NOT NULL CHECK (seq_no BETWEEN 0 AND 4294967295),
    hash      bytea NOT NULL CHECK (octet_length(hash) = 32),
    gen_time  timestamptz NOT NULL
);

CREATE INDEX blocks_by_workchain ON blocks (workchain, cursor);
CREATE INDEX blocks_by_shard ON blocks (workchain, shard, cursor);

-- NaN and infinity are greater than every number.
CREATE TABLE accounts (
    workchain integer NOT NULL,
    id        bytea NOT NULL CHECK (octet_length(id) = 32),
    balance   numeric NOT NULL CHECK (balance >= 0 AND balance < 1e78 AND balance = trunc(balance)),
    PRIMARY KEY (workchain, id)
);
