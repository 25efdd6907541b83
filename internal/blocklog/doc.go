// Package blocklog distributes one stream of blocks to many readers. It follows the source once for all of them, and
// readers with equal keys share one evaluation of each block. A [Reader] is a position in the log, not a queue, so a
// slow Reader needs no more memory than a fast one.
//
// The package does not know what a block contains: a block can have any type. Each block has a cursor, a string that
// increases from one block to the next.
//
// The life of a block:
//
//	      Source.Follow
//	            |
//	  accept (follow.go): the block's cursor must be higher than the last one
//	            |
//	  check (shardheads.go): does its sequence number continue its shard?
//	            |
//	    yes     |     no: a block before it is or may be missing
//	+-----------+-----------------+
//	|                             |
//	|             repair (repair.go, predecessors.go): call the source for up to 5 s
//	|                |                               |
//	|              found                         not found
//	|     insert missing blocks in         end the affected readers
//	|     their places; end readers        with ErrGap; start the
//	|     that received later blocks       window again
//	|     with ErrGap                                |
//	+----------------+-------------------------------+
//	                 |
//	  admit (follow.go): it becomes the newest block of the window (window.go)
//	                 |
//	  deliver (deliver.go, sharegroup.go): evaluated once for each key, on all processors;
//	  postponed for the keys of clients that take too much time (postponed.go)
//	                 |
//	  Reader.Next (reader.go)
//	    live:         takes the payload from its group
//	    slower, or    evaluates the blocks of the window itself
//	    postponed:
//	    catching up:  reads pages of stored blocks (catchup.go, pageread.go),
//	                  whose sequence numbers are also checked (pagecheck.go),
//	                  until its cursor is in the window (handover.go)
//	    ended:        returns a Lost with the cursor from which to resume
//
// If the source fails during the search for blocks that only may be missing, the log admits the block and repeats the
// search later. The log remembers gaps that were found late (lategap.go): if a client resumes from a cursor that it
// received while a block was missing, its Reader ends with ErrGap at once. If the source has no Place function, the log
// does not check sequence numbers.
package blocklog
