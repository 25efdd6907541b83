-- What a chain is kept in. The schema is the search_path's.

CREATE TABLE chaingql_state (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL,                        -- of these tables: the last migration that ran
    pruned   text COLLATE "C" NOT NULL DEFAULT ''     -- cursor of the newest block that was dropped
);

INSERT INTO chaingql_state (version) VALUES (0);

-- Cursors compare byte by byte, whatever the database's collation. Nobody could
-- read on from one of other characters.
CREATE TABLE blocks (
    cursor    text COLLATE "C" PRIMARY KEY
              CHECK (cursor <> '' AND octet_length(cursor) <= 64 AND ltrim(cursor, '0123456789abcdefm-') = ''),
    workchain integer NOT NULL,
    shard     bigint NOT NULL,                        -- the prefix's 64 bits, as a signed number
    seq_no    bigint NOT NULL CHECK (seq_no BETWEEN 0 AND 4294967295),
    hash      bytea NOT NULL CHECK (octet_length(hash) = 32),
    gen_time  timestamptz NOT NULL CHECK (isfinite(gen_time))
);

-- text_pattern_ops sorts as COLLATE "C" does, and is no match for the primary
-- key: a page of these cannot be read by walking that.
CREATE INDEX blocks_by_workchain ON blocks (workchain, cursor text_pattern_ops);
CREATE INDEX blocks_by_shard ON blocks (workchain, shard, cursor text_pattern_ops);

-- NaN and infinity are greater than every number.
CREATE TABLE accounts (
    workchain integer NOT NULL,
    id        bytea NOT NULL CHECK (octet_length(id) = 32),
    balance   numeric NOT NULL CHECK (balance >= 0 AND balance < 1e78 AND balance = trunc(balance)),
    PRIMARY KEY (workchain, id)
);
