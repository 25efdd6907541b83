-- chain identifies the chain, so that a running host notices if its tables are dropped and created again.
ALTER TABLE chaingql_state ADD COLUMN chain uuid NOT NULL DEFAULT gen_random_uuid();

-- "POSIX" sorts like "C", but matches no other index. Without this, the planner could use
-- blocks_by_workchain for the pages of a shard if it had no statistics, and read all blocks of the workchain.
DROP INDEX blocks_by_shard;
CREATE INDEX blocks_by_shard ON blocks (workchain, shard, cursor COLLATE "POSIX");

-- Readers learn from chaingql_state.pruned which blocks were deleted. These triggers reject every statement
-- that would change blocks, or delete blocks without updating pruned.

CREATE FUNCTION chaingql_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'chaingql: % of %.% is refused: readers would lose blocks without an error',
        TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation',
        HINT = 'Delete only the oldest blocks, by DELETE or Writer.Prune. To start again, drop the schema.';
END $$;

CREATE TRIGGER chaingql_refuse BEFORE TRUNCATE OR UPDATE ON blocks
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_refuse();
CREATE TRIGGER chaingql_refuse BEFORE TRUNCATE OR DELETE ON chaingql_state
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_refuse();
CREATE TRIGGER chaingql_refuse_update BEFORE UPDATE ON chaingql_state FOR EACH ROW
    WHEN (NEW.pruned < OLD.pruned OR NEW.chain <> OLD.chain) EXECUTE FUNCTION chaingql_refuse();

-- After a DELETE, no block may be left that is older than the newest deleted one, and at least one newer block
-- must be left. This trigger checks that and sets pruned to the newest deleted cursor. Its settings make the
-- planner use the primary key regardless of the statistics. The penalty for the rest of the plan would make
-- PostgreSQL compile each statement with JIT.
CREATE FUNCTION chaingql_deleted() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    deleted text COLLATE "C" := (SELECT max(cursor) FROM gone);
    floor text COLLATE "C";
    allowed boolean;
BEGIN
    IF deleted IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT pruned FROM %I.chaingql_state FOR UPDATE', TG_TABLE_SCHEMA) INTO floor;
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$I.blocks WHERE cursor > $2)'
        ' AND NOT EXISTS (SELECT FROM %1$I.blocks WHERE cursor > $1 AND cursor <= $2)',
        TG_TABLE_SCHEMA) INTO allowed USING floor, deleted;
    IF NOT allowed THEN
        RAISE EXCEPTION 'chaingql: a DELETE on %.% up to cursor % is refused: it must delete the oldest blocks and keep the newest',
            TG_TABLE_SCHEMA, TG_TABLE_NAME, deleted
            USING ERRCODE = 'restrict_violation';
    END IF;
    EXECUTE format('UPDATE %I.chaingql_state SET pruned = $1 WHERE pruned < $1', TG_TABLE_SCHEMA) USING deleted;
    RETURN NULL;
END $$;

CREATE TRIGGER chaingql_deleted AFTER DELETE ON blocks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_deleted();
