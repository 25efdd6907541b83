// Command bench measures chaingql and its peers, which are other GraphQL servers. All of them serve
// the same schema and the same chain from memory.
//
//	go run . -o RESULTS.md
//
// The command prints the results and writes them to RESULTS.md. The flag -parts selects the parts to
// measure. With -quick, all sizes are small, to check that every part runs. With -profiles, the command
// writes CPU and allocation profiles of chaingql instead. Other flags set sizes.
//
// The command needs Linux. The servers are separate processes that listen on 127.0.0.1. Those in Go run
// this program. Those in JavaScript run Node.js and need the packages that npm ci installs in the
// directory node.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

//go:embed schema.graphql
var sdl string

// A part is a group of measurements. Its function run adds their results to a report.
type part struct {
	name string
	run  func(context.Context, sizes, *report) error
}

var parts = []part{
	{"inprocess", inProcess},
	{"allocations", allocations},
	{"unseen", unseenDocuments},
	{"plans", plans},
	{"pages", pages},
	{"loopback", loopback},
	{"sockets", sockets},
	{"fanout", fanout},
	{"onecpu", oneCPU},
	{"compression", compression},
	{"churn", churn},
	{"growth", growth},
}

// full holds the sizes that RESULTS.md was measured with.
var full = sizes{
	rounds: 15, processes: 9, slice: 60 * time.Millisecond, calls: 2000, load: 500 * time.Millisecond, connections: 64,
	subscribers: 10_000, blocks: 15, bursts: 5, steady: 5000, growth: []int{100, 1000, 5000, 15_000},
	plans: []int{10, 1000, 100_000}, short: 250_000, long: 20_000, windows: []int{1024, 65_536}, stored: 1_000_000,
}

// quick holds small sizes, which are enough to check that every part runs.
var quick = sizes{
	rounds: 2, processes: 2, slice: 2 * time.Millisecond, calls: 100, load: 20 * time.Millisecond, connections: 8,
	subscribers: 40, blocks: 2, bursts: 1, steady: 20, growth: []int{10, 20},
	plans: []int{10, 50}, short: 200, long: 20, windows: []int{1024}, stored: 60_000,
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch command(os.Args) {
	case "serve":
		err = serve(os.Args[2:])
	case "client":
		err = client(os.Args[2:])
	case "inprocess":
		err = measureInProcess(os.Args[2:])
	case "floods":
		err = measureFloods(os.Args[2:])
	case "sdl": // prints schema.graphql
		_, err = fmt.Print(chaingql.New(memchain.New(), settings(nil)).SDL())
	default:
		err = measure(ctx, os.Args[1:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func command(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// measure runs the selected parts and writes the report.
func measure(ctx context.Context, args []string) error {
	size := full
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	out := flags.String("o", "", "file to write the results to, in Markdown")
	chosen := flags.String("parts", "", "comma-separated parts to measure: "+strings.Join(names(parts),
		",")+" (default all)")
	small := flags.Bool("quick", false, "measure with small sizes, to check that every part runs")
	profile := flags.String("profiles", "",
		"measure nothing and write CPU and allocation profiles of chaingql into this folder")
	limit := flags.Duration("timeout", 20*time.Minute, "time limit of the whole run")
	flags.IntVar(&size.rounds, "rounds", size.rounds, "number of rounds")
	flags.IntVar(&size.subscribers, "subscribers", size.subscribers, "number of subscribers")
	flags.IntVar(&size.steady, "steady", size.steady, "number of subscribers during churn")
	flags.IntVar(&size.blocks, "blocks", size.blocks, "number of blocks that are sent one by one")
	flags.IntVar(&size.bursts, "bursts", size.bursts, "number of bursts")
	flags.IntVar(&size.short, "short", size.short, "number of short documents in the flood")
	flags.IntVar(&size.long, "long", size.long, "number of long documents in the flood")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *small {
		size = quick
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if *profile != "" {
		return profiles(ctx, size, *profile)
	}
	r, start := newReport(os.Stdout), time.Now()
	for _, p := range parts {
		if *chosen != "" && !slices.Contains(strings.Split(*chosen, ","), p.name) {
			continue
		}
		begin := time.Now()
		if err := p.run(ctx, size, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("   %s took %.0f s\n", p.name, time.Since(begin).Seconds())
	}
	took := fmt.Sprintf("%.0f s", time.Since(start).Seconds())
	facts := append(environment(), [2]string{"command", "go run . " + strings.Join(args, " ") + " (" + took + ")"})
	if err := r.write(os.Stdout, facts); err != nil || *out == "" {
		return err
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.write(f, facts)
}

func names(parts []part) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}
