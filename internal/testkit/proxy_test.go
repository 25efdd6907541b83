package testkit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }

func TestFreeAddressCanBeListenedOn(t *testing.T) {
	for range 10 {
		l, err := net.Listen("tcp", testkit.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // so that the next address is a different one
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("got address %v, want a loopback address", ip)
		}
	}
}

func TestProxyStallsCutsForgetsAndRefusesConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // an echo server
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	r := testkit.NewProxy(t, l.Addr().String())
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c, bufio.NewReader(c)
	}
	readLine := func(c net.Conn, from *bufio.Reader, patience time.Duration) (string, error) {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		return from.ReadString('\n')
	}
	c, from := dial()
	fmt.Fprintln(c, "one")
	if line, err := readLine(c, from, 5*time.Second); line != "one\n" {
		t.Fatalf("read %q and error %v, want the line that was sent", line, err)
	}
	resume := r.Stall()
	fmt.Fprintln(c, "two")
	if line, err := readLine(c, from, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q and error %v from a stalled connection, want a timeout", line, err)
	}
	resume()
	if line, err := readLine(c, from, 5*time.Second); line != "two\n" {
		t.Fatalf("read %q and error %v, want the line that was sent", line, err)
	}
	r.Cut()
	if line, err := readLine(c, from, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q and error %v from a connection that was cut, want an error", line, err)
	}
	c, from = dial()
	fmt.Fprintln(c, "three")
	if line, err := readLine(c, from, 5*time.Second); line != "three\n" {
		t.Fatalf("read %q and error %v, want the line that was sent", line, err)
	}
	r.Forget()
	fmt.Fprintln(c, "four")
	if line, err := readLine(c, from, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q and error %v from a forgotten connection, want a timeout", line, err)
	}
	_ = l.Close()
	c, from = dial()
	if line, err := readLine(c, from, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q and error %v although the target does not listen, want an error", line, err)
	}
	r.Refuse()
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port())); err == nil {
		t.Errorf("the proxy accepted a connection after Refuse; closing it returned %v", c.Close())
	}
}
