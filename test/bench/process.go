package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/chaingql/chaingql/test/bench/source"
)

// A process is a child process that reads one command per line and replies to each command with one
// line of JSON.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

// start starts a program as a child process.
func start(ctx context.Context, name string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "NODE_ENV=production") // the usual setting of Node.js servers
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, nil
}

// startSelf starts this program as a child process.
func startSelf(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, self, args...)
}

// inProcesses runs a command of this program in several processes, one after another, and divides the rounds among
// them: some ratios differ more between processes than between the rounds of one. Each process measures at least three
// rounds, so that one that was disturbed does not change its median, and prints its costs by query.
func inProcesses(ctx context.Context, size sizes, command string, n int) ([]map[string]costs, error) {
	rounds := max(3, (size.rounds+size.processes-1)/size.processes)
	var all []map[string]costs
	for range size.processes {
		p, err := startSelf(ctx, command, fmt.Sprint(rounds), size.slice.String(), fmt.Sprint(n))
		if err != nil {
			return nil, err
		}
		var got map[string]costs
		err = p.receive(&got)
		p.stop()
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

// measuring returns the arguments that inProcesses passes.
func measuring(args []string) (rounds int, slice time.Duration, n int, err error) {
	if len(args) != 3 {
		return 0, 0, 0, errors.New("needs three arguments: the number of rounds, a duration, and a number")
	}
	rounds, wrong1 := strconv.Atoi(args[0])
	slice, wrong2 := time.ParseDuration(args[1])
	n, wrong3 := strconv.Atoi(args[2])
	return rounds, slice, n, errors.Join(wrong1, wrong2, wrong3)
}

// overProcesses returns the median over the processes of a figure that f computes from the costs of a query.
func overProcesses(processes []map[string]costs, query string, f func(costs) float64) float64 {
	var all []float64
	for _, got := range processes {
		all = append(all, f(got[query]))
	}
	return median(all)
}

// send sends a command.
func (p *process) send(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// receive decodes a reply into v.
func (p *process) receive(v any) error {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%v: %w", p.cmd.Args, err)
	}
	return json.Unmarshal(line, v)
}

// ask sends a command and decodes the reply into v.
func (p *process) ask(line string, v any) error {
	return errors.Join(p.send(line), p.receive(v))
}

// stop closes the input of the process and waits until the process exits. It kills the process after 10
// seconds.
func (p *process) stop() {
	_ = p.in.Close()
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// A server is a process in which a peer serves the chain.
type server struct {
	*process
	peer, addr string
}

// A launcher starts the server of a peer.
type launcher func(ctx context.Context, peer string) (*server, error)

// launch starts the server of a peer, one of the compared GraphQL servers. The server may use all CPUs.
func launch(ctx context.Context, peer string) (*server, error) {
	if peer == mercurius || peer == yoga {
		s, err := source.New()
		if err != nil {
			return nil, err
		}
		return launchNode(ctx, peer, s)
	}
	p, err := startSelf(ctx, "serve", peer)
	return newServer(peer, p, err)
}

// launchNode starts the server of a Node.js peer with a copy of the chain.
func launchNode(ctx context.Context, peer string, chain *source.Source) (*server, error) {
	p, err := startNode(ctx, peer, chain)
	return newServer(peer, p, err)
}

// newServer reads the address that a started process prints.
func newServer(peer string, p *process, err error) (*server, error) {
	if err != nil {
		return nil, err
	}
	s := &server{process: p, peer: peer}
	if err := s.receive(&s.addr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// do sends a command and returns the state with which the server replies.
func (s *server) do(line string) (state, error) {
	var now state
	err := s.ask(line, &now)
	return now, err
}
