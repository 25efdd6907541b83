// Command boundaries finds comparisons whose boundary is not tested. In each named package it
// replaces every < with <= and every > with >=, one at a time, and runs the tests of the package
// and then those of the packages given with -also. It prints each replacement that passes all
// tests: that comparison needs a test, or a reason why the boundary does not matter.
//
//	cd tools && go run ./boundaries -C .. -also . ./internal/blocklog ./memchain
//
// The source tree is not changed: go test reads the modified file with -overlay.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

var swapped = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

// A comparison is a comparison operator in a file.
type comparison struct {
	file   string
	at     token.Position
	length int // length of the operator
	to     string
	text   string // source line
}

func main() {
	root := flag.String("C", ".", "the directory of the module")
	also := flag.String("also", "", "comma-separated packages whose tests also run if those of the package pass")
	only := flag.String("only", "", "swap only in files whose path contains this text")
	limit := flag.Duration("timeout", 2*time.Minute, "timeout of one test run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, flag.Args(), *also, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "boundaries:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, dirs []string, also, only string, limit time.Duration) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	tried, unnoticed := 0, 0
	for _, dir := range dirs {
		found, err := comparisons(filepath.Join(root, dir), only)
		if err != nil {
			return err
		}
		packages := []string{dir}
		if also != "" {
			packages = append(packages, strings.Split(also, ",")...)
		}
		for _, c := range found {
			noticed, err := noticed(ctx, root, c, packages, limit)
			if err != nil {
				return err
			}
			tried++
			if !noticed {
				unnoticed++
				name, _ := filepath.Rel(root, c.file)
				fmt.Printf("%s:%d:%d: tests pass with %s: %s\n", name, c.at.Line, c.at.Column, c.to, c.text)
			}
		}
	}
	fmt.Printf("%d comparisons replaced, %d without a failing test\n", tried, unnoticed)
	return nil
}

// comparisons lists the comparisons in a directory's files, without tests.
func comparisons(dir, only string) ([]comparison, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []comparison
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(file, only) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		ast.Inspect(parsed, func(n ast.Node) bool {
			if n, ok := n.(*ast.BinaryExpr); ok && swapped[n.Op] != "" {
				at := set.Position(n.OpPos)
				text := strings.TrimSpace(lines[at.Line-1])
				found = append(found, comparison{file, at, len(n.Op.String()), swapped[n.Op], text})
			}
			return true
		})
	}
	return found, nil
}

// noticed reports whether a test fails, does not compile, or times out with the replaced operator.
func noticed(ctx context.Context, root string, c comparison, packages []string, limit time.Duration) (bool, error) {
	dir, err := os.MkdirTemp("", "boundaries")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(c.file)
	if err != nil {
		return false, err
	}
	changed := string(text[:c.at.Offset]) + c.to + string(text[c.at.Offset+c.length:])
	file, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return false, err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{c.file: file}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return false, err
	}
	for _, pkg := range packages {
		test := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout", limit.String(),
			"-overlay", overlay, pkg)
		test.Dir = root
		err := test.Run()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			return true, nil
		}
	}
	return false, nil
}
