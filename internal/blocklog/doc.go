// Package blocklog distributes one stream of blocks to all its readers. The source is followed once for all of them,
// readers with equal keys share one evaluation of each block, and a Reader is a position in the log instead of a queue:
// a slow one needs no more memory than a fast one.
//
// The package knows nothing of what readers make of a block. A block is any B with a cursor, a string that increases
// from each block to the next.
//
// The life of a block:
//
//	      Source.Follow
//	            |
//	  accept (follow.go): its cursor must increase
//	            |
//	  judge (lines.go): does its sequence number continue its shard?
//	            |
//	    yes     |     no: a block is missing, or may be
//	+-----------+-----------------+
//	|                             |
//	|             mend (heal.go, kin.go): ask the source for up to 5 s
//	|                |                               |
//	|              found                       not found
//	|     put in at its place; readers     readers end with ErrGap,
//	|     that are past it end with        the window begins anew
//	|     ErrGap                                     |
//	+----------------+-------------------------------+
//	                 |
//	  admit (follow.go): the newest block of the window (window.go)
//	                 |
//	  deliver (feed.go): evaluated once for each key, on all processors
//	                 |
//	  Reader.Next (reader.go)
//	    live:      takes it from its feed
//	    slower:    evaluates the window's blocks itself
//	    behind:    reads pages of stored blocks (catchup.go, queue.go),
//	               whose sequence numbers are checked too (pagecheck.go),
//	               until its cursor is in the window (seam.go)
//	    ended:     [Lost] has the cursor from which to resume
//
// A client that resumes with a cursor from a time when a block was missing is found by the remembered gaps (doubt.go):
// its Reader ends with ErrGap at once. If the source offers no [Place], sequence numbers are not checked.
package blocklog
