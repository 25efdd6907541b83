-- Lookups of single blocks by hash, by number and by time. To keep the downtime of a large chain short, create these
-- indexes before the update, with CREATE INDEX CONCURRENTLY and the same names.

CREATE INDEX IF NOT EXISTS blocks_by_hash ON blocks USING hash (hash);
CREATE INDEX IF NOT EXISTS blocks_by_seq_no ON blocks (workchain, shard, seq_no);
CREATE INDEX IF NOT EXISTS blocks_by_time ON blocks (gen_time, cursor) WHERE workchain = -1;
