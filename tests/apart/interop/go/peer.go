// The driver of zk.Lock, of Go's client. `peer.rs` lists its commands.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

var outputLock sync.Mutex

func reply(handle, text string) {
	outputLock.Lock()
	defer outputLock.Unlock()
	fmt.Println(handle, strings.ReplaceAll(text, "\n", " "))
}

// Replays the ledger, and returns holders that excluded each other but held at once.
func overlap(ledger string, limit int) []string {
	lines, err := os.ReadFile(ledger)
	if err != nil {
		return []string{err.Error()}
	}
	var present []string
	for _, line := range strings.Split(strings.TrimSuffix(string(lines), "\n"), "\n") {
		if line[0] == '+' {
			present = append(present, line[1:])
		} else {
			for at, who := range present {
				if who == line[1:] {
					present = append(present[:at], present[at+1:]...)
					break
				}
			}
		}
		writers := 0
		for _, who := range present {
			if who[0] != 'r' {
				writers++
			}
		}
		if len(present) > limit && writers > 0 {
			return present
		}
	}
	return nil
}

func write(ledger, line string) error {
	file, err := os.OpenFile(ledger, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(line + "\n")
	return err
}

// One lock, and the goroutine that runs its commands.
type handle struct {
	name     string
	conn     *zk.Conn
	lock     *zk.Lock
	commands chan []string
}

func (h *handle) run() {
	for words := range h.commands {
		answer, err := h.do(words[0], words[1:])
		if err != nil {
			answer = fmt.Sprintf("error %v", err)
		}
		reply(h.name, answer)
	}
}

func (h *handle) do(verb string, arguments []string) (string, error) {
	switch {
	case verb == "new" && arguments[0] == "lock":
		h.lock = zk.NewLock(h.conn, arguments[1], zk.WorldACL(zk.PermAll))
		return "ok", nil
	case verb == "acquire" && len(arguments) == 0:
		if err := h.lock.Lock(); err != nil {
			return "", err
		}
		// It has no method for the name of its node.
		return "held " + reflect.ValueOf(h.lock).Elem().FieldByName("lockPath").String(), nil
	case verb == "release":
		return "ok", h.lock.Unlock()
	case verb == "work":
		return h.work(arguments[0], arguments[1], arguments[2], arguments[3])
	}
	// A lock of Go's client cannot be cancelled, and has no time limit.
	return "", fmt.Errorf("cannot do %s %v", verb, arguments)
}

func (h *handle) work(ledger, mark, limit, times string) (string, error) {
	who := fmt.Sprintf("%s go-%d-%s", mark, os.Getpid(), h.name)
	most, err := strconv.Atoi(limit)
	if err != nil {
		return "", err
	}
	turns, err := strconv.Atoi(times)
	if err != nil {
		return "", err
	}
	for ; turns > 0; turns-- {
		if err := h.lock.Lock(); err != nil {
			return "", err
		}
		if err := write(ledger, "+"+who); err != nil {
			return "", err
		}
		// Long enough for another holder to acquire, if it may.
		for look := 0; look < 10; look++ {
			if _, _, err := h.conn.Exists("/"); err != nil {
				return "", err
			}
		}
		together := overlap(ledger, most)
		if err := write(ledger, "-"+who); err != nil {
			return "", err
		}
		if err := h.lock.Unlock(); err != nil {
			return "", err
		}
		if together != nil {
			return "", fmt.Errorf("at once: %v", together)
		}
	}
	return "ok", nil
}

func main() {
	milliseconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	timeout := time.Duration(milliseconds) * time.Millisecond
	conn, events, err := zk.Connect(strings.Split(os.Args[1], ","), timeout, zk.WithLogInfo(false))
	if err != nil {
		panic(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	fmt.Println("ready")
	handles := map[string]*handle{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		one := handles[words[0]]
		if one == nil {
			one = &handle{name: words[0], conn: conn, commands: make(chan []string, 100)}
			handles[words[0]] = one
			go one.run()
		}
		one.commands <- words[1:]
	}
	conn.Close()
}
