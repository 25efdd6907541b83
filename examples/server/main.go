// Command server serves the API and an explorer at /. Its chain is simulated or replayed from a recording.
//
//	go run ./examples/server
//	go run ./examples/server -chain testdata/recordings/ton-mainnet-genesis.json.gz -rate 20
//	go run ./examples/server -project demo -project shop=s3cret
//
// On SIGTERM, SIGINT and SIGHUP it reports for the time -drain-lead that it is not ready, and then shuts down
// gracefully. A second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/explorer"
	"github.com/chaingql/chaingql/memchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// These are the exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // bad flags, unreadable or malformed files
)

// drain is the maximum duration of the graceful shutdown.
const drain = 10 * time.Second

// A config holds the flags and the contents of the files that they name.
type config struct {
	addr      string
	lead      time.Duration
	drainLead time.Duration
	perAddr   int
	rate      float64
	epoch     string
	projects  projects
	blocks    []chaingql.Block
	skipped   int
	balances  map[chaingql.Address]*big.Int
}

// projects collects the flags -project id and -project id=secret.
type projects struct {
	ids    []string
	static chaingql.StaticProjects
}

// idCharacters are the characters of a project id, which need no quotes in URLs and shells. idLetters are those of an
// epoch.
const (
	idLetters    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	idCharacters = idLetters + "-_"
)

func (p *projects) String() string { return "" }

func (p *projects) Set(s string) error {
	id, secret, hasSecret := strings.Cut(s, "=")
	switch {
	case id == "" || strings.Trim(id, idCharacters) != "":
		return fmt.Errorf("%q is not a project id: an id consists of letters, digits, - and _", id)
	case hasSecret && secret == "":
		return fmt.Errorf("the secret of project %q is empty", id)
	case slices.ContainsFunc(p.ids, func(known string) bool { return strings.EqualFold(known, id) }):
		return fmt.Errorf("project %q is given twice", id)
	}
	if p.static == nil {
		p.static = chaingql.StaticProjects{}
	}
	p.ids = append(p.ids, id)
	p.static[id] = chaingql.Project{Secret: secret, RequireSecret: hasSecret}
	return nil
}

// first returns the id and the secret of the project for the printed examples.
func (p *projects) first() (id, secret string) {
	if len(p.ids) == 0 {
		return "demo", ""
	}
	return p.ids[0], p.static[p.ids[0]].Secret
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := configure(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintf(stderr, "server: %v\n", err)
		return exitUsage
	}
	if err := serve(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "server: %v\n", err)
		return exitFailed
	}
	return exitDone
}

func configure(args []string, help io.Writer) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error as one line
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.Float64Var(&cfg.rate, "rate", 10, "recorded `blocks` to replay per second")
	flags.DurationVar(&cfg.lead, "lead", usualLead,
		"`time` before the first recorded block is replayed, so that clients can subscribe before it")
	flags.DurationVar(&cfg.drainLead, "drain-lead", 3*time.Second,
		"`time` from a signal to stop, when readiness ends, to the shutdown")
	flags.IntVar(&cfg.perAddr, "per-address", 0,
		"`number` of requests, event streams and sockets that one address may have in progress; 0: no limit")
	flags.StringVar(&cfg.epoch, "epoch", "",
		"`letters` and digits that the cursors of the chain end in, so that clients notice if it was replaced")
	flags.Var(&cfg.projects, "project",
		"`id` of a project, or id=secret for a project that requires its secret; can be repeated. "+
			"Default: every project is allowed, without a secret")
	chain := flags.String("chain", "", "`file` with a recorded chain to replay before simulating")
	accounts := flags.String("accounts", "", "`file` with recorded accounts and their balances")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(help)
			flags.Usage()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, err := net.ResolveTCPAddr("tcp", cfg.addr); err != nil {
		return nil, fmt.Errorf("-addr: %w", err)
	}
	if !(cfg.rate > 0 && cfg.rate <= 1e6) {
		return nil, fmt.Errorf("-rate must be greater than 0 and at most 1,000,000 blocks per second, not %v", cfg.rate)
	}
	if len(cfg.epoch) > 32 || strings.Trim(cfg.epoch, idLetters) != "" {
		return nil, fmt.Errorf("-epoch must have at most 32 letters and digits, but is %q", cfg.epoch)
	}
	if cfg.perAddr < 0 {
		return nil, fmt.Errorf("-per-address must not be negative, but is %d", cfg.perAddr)
	}
	if cfg.lead < 0 {
		return nil, fmt.Errorf("-lead must not be negative, but is %v", cfg.lead)
	}
	if *chain != "" {
		rec, err := load(*chain)
		if err != nil {
			return nil, err
		}
		if len(rec.Blocks) == 0 {
			return nil, fmt.Errorf("%s contains no block with a chain_order", *chain)
		}
		cfg.blocks, cfg.skipped, cfg.balances = rec.Blocks, rec.Skipped, rec.Balances
	}
	if *accounts != "" {
		rec, err := load(*accounts)
		if err != nil {
			return nil, err
		}
		if len(rec.Balances) == 0 {
			return nil, fmt.Errorf("%s contains no accounts", *accounts)
		}
		cfg.balances = rec.Balances
	}
	return cfg, nil
}

func load(path string) (memchain.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return memchain.Recording{}, err
	}
	defer f.Close()
	rec, err := memchain.Load(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return rec, err
}

func serve(ctx context.Context, cfg *config, stdout, stderr io.Writer) error {
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	chain := memchain.New()
	if cfg.epoch != "" {
		chain.Replace(cfg.epoch)
	}
	balances := cfg.balances
	if len(balances) == 0 {
		balances = simulatedBalances()
	}
	for addr, nano := range balances {
		chain.SetBalance(addr, nano)
	}

	clients := &perAddress{max: cfg.perAddr}
	opts := &chaingql.Options{
		AllowedOrigins: []string{"*"},
		Logger:         slog.New(slog.NewTextHandler(stderr, nil)),
		Hooks:          clients.hooks(),
	}
	if cfg.projects.static != nil {
		opts.Authorizer = cfg.projects.static
	}
	handler := chaingql.New(chain, opts)
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)
	chaingql.Mount(mux, "/graphql", handler) // for clients that send no project
	id, _ := cfg.projects.first()
	mux.HandleFunc("GET /readyz", handler.ServeReady)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
	mux.Handle("/", explorer.New(&explorer.Options{Project: id, Account: account(balances)}))
	server := &http.Server{
		Handler:           clients.middleware(mux),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // limits reading of a request; does not end sockets and event streams
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}

	greet(stdout, listener.Addr(), cfg, balances)

	failed := make(chan error, 2)
	running, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		if err := makeBlocks(running, chain, cfg.blocks, cfg.lead, cfg.rate); err != nil {
			failed <- err
		}
	})
	all.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})

	select {
	case <-ctx.Done():
		signal.Reset() // a second signal ends the process at once
		fmt.Fprintln(stdout, "stopping")
		handler.Drain(context.Background(), cfg.drainLead)
	case err = <-failed:
	}
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	err = errors.Join(err, server.Shutdown(leave), <-drained)
	stop() // until now, subscribers received blocks
	all.Wait()
	return err
}

// account returns the address of the account for the printed examples.
func account(balances map[chaingql.Address]*big.Int) string {
	addresses := make([]string, 0, len(balances))
	for a := range balances {
		addresses = append(addresses, a.String())
	}
	return slices.Min(addresses)
}

// reachable returns an address with which programs on this machine can connect to a listener on addr.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}

// greet prints the URL of the service and example commands.
func greet(w io.Writer, addr net.Addr, cfg *config, balances map[chaingql.Address]*big.Int) {
	id, secret := cfg.projects.first()
	curl, wscat := "", ""
	if secret != "" {
		user := "':" + strings.ReplaceAll(secret, "'", `'\''`) + "'"
		curl, wscat = " -u "+user, " --auth "+user
	}
	host := reachable(addr)
	url := fmt.Sprintf("%s/%s/graphql", host, id)
	fmt.Fprintf(w, "serving on http://%s\n", url)
	if cfg.blocks == nil {
		fmt.Fprintln(w, "simulating a chain: every second one masterchain block and one block in each of two shards")
	} else {
		fmt.Fprintf(w, "replaying %d recorded blocks after %v at %v blocks per second, then simulating the chain\n",
			len(cfg.blocks), cfg.lead, cfg.rate)
	}
	if cfg.skipped > 0 {
		fmt.Fprintf(w, "skipping %d recorded blocks without chain_order\n", cfg.skipped)
	}
	fmt.Fprintf(w, `
# the explorer, with a page of live blocks at /live
http://%[5]s/

# the latest block
curl%[1]s http://%[2]s -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# a balance
curl%[1]s http://%[2]s -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{account(address:\"%[3]s\"){info{balance(format:DEC)}}}}"}'

# each new masterchain block
npx wscat%[4]s -c ws://%[2]s -s graphql-ws -w -1 -x '{"id":"1","type":"start","payload":`+
		`{"query":"subscription{blocks(filter:{workchain_id:{eq:-1}}){seq_no id}}"}}'

`, curl, url, account(balances), wscat, host)
}
