// Checks histories of transactions with Porcupine, an independent linearizability checker: a
// history of transactions is strictly serializable if it is linearizable as one of a single
// object, the whole table.
//
//	go run . FILE.edn …
//
// SILTSTONE_EDN writes the histories (see ../src/serial/edn.rs). Aborted transactions are omitted;
// one with an unknown outcome may take effect at any time after it began. Histories whose names
// begin with "weak" are of stores with deliberately weaker isolation. Exit status: 0 if all others
// pass and some weak one does not, 1 otherwise.
package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// An event of a transaction: an append to a list, or a read of one.
type event struct {
	key     int
	element int
	list    []int
	reads   bool
}

// The table: lists by key. States are immutable, and copied on change.
type table map[int][]int

var (
	line   = regexp.MustCompile(`:type :(\w+) :process (\d+) :time (\d+) :f :txn :value \[(.*)\]\}$`)
	single = regexp.MustCompile(`\[:append (\d+) (\d+)\]|\[:r (\d+) (?:nil|\[([\d ]*)\])\]`)
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func events(text string) []event {
	var found []event
	for _, part := range single.FindAllStringSubmatch(text, -1) {
		if part[1] != "" {
			found = append(found, event{key: number(part[1]), element: number(part[2])})
			continue
		}
		read := event{key: number(part[3]), reads: true}
		for _, element := range strings.Fields(part[4]) {
			read.list = append(read.list, number(element))
		}
		found = append(found, read)
	}
	return found
}

// The transactions of a file, without those that surely had no effect.
func history(file string) ([]porcupine.Operation, error) {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	began := map[int]int64{}
	var operations []porcupine.Operation
	for at, text := range strings.Split(strings.TrimSpace(string(bytes)), "\n") {
		parts := line.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%s: line %d is no event", file, at+1)
		}
		process, when := number(parts[2]), int64(number(parts[3]))
		end := when
		switch parts[1] {
		case "invoke":
			began[process] = when
			continue
		case "fail":
			continue
		case "info":
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{
			ClientId: process, Input: events(parts[4]), Call: began[process], Output: parts[1] == "ok", Return: end,
		})
	}
	return operations, nil
}

// Whether a transaction may come next, and the table after it.
func step(state, input, output any) (bool, any) {
	after := table{}
	for key, list := range state.(table) {
		after[key] = list
	}
	for _, event := range input.([]event) {
		if !event.reads {
			after[event.key] = append(append([]int{}, after[event.key]...), event.element)
		} else if output.(bool) && fmt.Sprint(event.list) != fmt.Sprint(after[event.key]) {
			return false, state
		}
	}
	return true, after
}

func equal(a, b any) bool {
	one, other := a.(table), b.(table)
	if len(one) != len(other) {
		return false
	}
	for key, list := range one {
		if fmt.Sprint(list) != fmt.Sprint(other[key]) {
			return false
		}
	}
	return true
}

func main() {
	model := porcupine.Model{Init: func() any { return table{} }, Step: step, Equal: equal}
	files := os.Args[1:]
	sort.Strings(files)
	transactions, broken, weak, caught := 0, 0, 0, 0
	for _, file := range files {
		operations, err := history(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		isWeak := strings.HasPrefix(filepath.Base(file), "weak") && !strings.Contains(file, "Serial")
		result := porcupine.CheckOperationsTimeout(model, operations, time.Minute)
		if isWeak {
			weak++
			if result == porcupine.Illegal {
				caught++
			}
			continue
		}
		transactions += len(operations)
		if result != porcupine.Ok {
			broken++
			fmt.Printf("%s: %s\n", file, result)
		}
	}
	fmt.Printf("%d transactions in %d histories, %d of them not strictly serializable; of %d weak ones %d caught\n",
		transactions, len(files)-weak, broken, weak, caught)
	if broken > 0 || weak > 0 && caught == 0 {
		os.Exit(1)
	}
}
