package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// listenAgain is the time after which a lost subscription is asked for again, plus up to as much at random.
	listenAgain = 100 * time.Millisecond
	// silence is how long nothing may be heard until the server is asked whether it is there, and then until it is given up.
	silence = 500 * time.Millisecond
)

// A Listener is told what may make a counter ready earlier than it was said to be: refunds and resets, by any process.
type Listener interface {
	// Drop is called for each counter that something was given back to, or that was reset.
	Drop(key string)
	// Listening(true) is called when announcements are heard from now on, Listening(false) when they may be missed.
	Listening(heard bool)
}

// Listen lets listeners hear of refunds and resets on Options.Channel until stop is called, which waits for the end. Redis may
// be down. The listeners' methods are called one at a time, in the order of the listeners, and must be quick.
func (s *Store) Listen(listeners ...Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			s.listen(ctx, listeners)
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain + rand.N(listenAgain)): //nolint:gosec // spreads replicas, guards no secret
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

// listen subscribes and passes on what is heard, until the connection is lost or ctx ends.
func (s *Store) listen(ctx context.Context, listeners []Listener) {
	subscription := s.client.Subscribe(ctx, s.options.Channel)
	closed := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer func() {
		if closed() {
			_ = subscription.Close()
		}
		for _, l := range listeners {
			l.Listening(false)
		}
	}()
	asked := false
	for {
		message, err := subscription.ReceiveTimeout(ctx, silence)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if subscription.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			for _, l := range listeners {
				l.Listening(true)
			}
		case *redis.Message:
			key := s.known(m.Payload)
			for _, l := range listeners {
				l.Drop(key)
			}
		}
	}
}

// known is the key of the hits that are counted under a name.
func (s *Store) known(name string) string {
	if key, ok := envoyKey(name); ok {
		return key
	}
	return s.untagged(name)
}

// untagged is the key that a Cluster knows by this name.
func (s *Store) untagged(name string) string {
	if s.cluster == nil || !strings.HasPrefix(name, "{") {
		return name
	}
	tag, rest, _ := strings.Cut(name[1:], "}")
	if key := tag + rest; string(appendTagged(nil, key)) == name {
		return key
	}
	return rest
}

// announce adds the announcement of a key that was reset to a pipeline. That it may fail is no error of the reset: who may
// not publish may not subscribe either.
func (s *Store) announce(ctx context.Context, pipe redis.Pipeliner, name string) {
	if s.options.Channel != "" {
		pipe.Publish(ctx, s.options.Channel, name)
	}
}
