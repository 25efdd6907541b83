// Package blocklog distributes one stream of blocks to all its readers. It follows the source once for all of them, and
// readers with equal keys share one evaluation of each block. A Reader is a position in the log instead of a queue: a
// slow reader needs no more memory than a fast one.
//
// The package does not know how readers use a block. A block is any B with a cursor, a string that increases from each
// block to the next.
//
// The life of a block:
//
//	      Source.Follow
//	            |
//	  accept (follow.go): its cursor must increase
//	            |
//	  check (shardheads.go): does its sequence number continue its shard?
//	            |
//	    yes     |     no: a block is or may be missing
//	+-----------+-----------------+
//	|                             |
//	|             repair (repair.go, predecessors.go): call the source for up to 5 s
//	|                |                               |
//	|              found                       not found
//	|     insert it in its place; readers  readers end with ErrGap,
//	|     that are past it end with        the window starts again
//	|     ErrGap                                     |
//	+----------------+-------------------------------+
//	                 |
//	  admit (follow.go): the newest block of the window (window.go)
//	                 |
//	  deliver (sharegroup.go): evaluated once for each key, on all processors
//	                 |
//	  Reader.Next (reader.go)
//	    live:         takes the payload from its group
//	    slower:       evaluates the blocks of the window itself
//	    catching up:  reads pages of stored blocks (catchup.go, pageread.go),
//	                  whose sequence numbers are also checked (pagecheck.go),
//	                  until its cursor is in the window (handover.go)
//	    ended:        [Lost] contains the cursor from which to resume
//
// The log remembers gaps that were found late (lategap.go). If a client resumes with a cursor that it received while a
// block was missing, its Reader ends with ErrGap at once. If the source has no Place function, sequence numbers are not
// checked.
package blocklog
