package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrUnavailable is wrapped by the error of every charge that Redis was to decide and did not, whatever the reason: it cannot
	// be reached, does not answer in time, or refuses to. The charge may have been counted.
	ErrUnavailable = errors.New("redis did not decide")
	// ErrCrossSlot is the error of a charge, in a Cluster, whose hits cannot be counted together: their keys are not of one
	// descriptor, so they live in different slots, and perhaps on different nodes.
	ErrCrossSlot = errors.New("hits of one charge live in different slots of the Redis Cluster: charge each descriptor by itself")
	// ErrTooManyHits is the error of a charge with more than 10,000 hits.
	ErrTooManyHits = errors.New("too many hits in one charge")
	// ErrReply is wrapped, besides ErrUnavailable, if what Redis answered makes no sense.
	ErrReply = errors.New("unexpected reply")

	errOverloaded = fmt.Errorf("%w: overloaded: more than %d hits wait for it: add replicas of weir, or a faster Redis", ErrUnavailable, maxWaiting)
	errUndecided  = fmt.Errorf("%w: the round trip was given up", ErrUnavailable)
)

// unavailable wraps the cause of a failed round trip, and says what it means where that is not plain.
func unavailable(cause error) error {
	if cause == nil {
		return nil
	}
	if meaning := meaning(cause); meaning != "" {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, meaning, cause)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

func meaning(err error) string {
	var operation *net.OpError
	var network net.Error
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return "it asks for a password: set one"
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "ERR invalid password"):
		return "user or password is wrong"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "its user lacks a permission: allow EVALSHA, EVAL, SCRIPT LOAD, TIME, SUBSCRIBE, PUBLISH, the commands for strings and lists, the keys, and the channel"
	case redis.IsOOMError(err):
		return "its memory is full: raise maxmemory, or choose an eviction policy"
	case redis.IsReadOnlyError(err):
		return "it is a replica, which cannot count: name the primary, or use Sentinel"
	case redis.IsLoadingError(err):
		return "it is still loading its data"
	case redis.IsMasterDownError(err):
		return "it is a replica that has lost its primary"
	case redis.IsClusterDownError(err):
		return "the cluster is down, or nobody holds the slot"
	case redis.IsTryAgainError(err):
		return "the slot is being moved to another node"
	case redis.IsMaxClientsError(err):
		return "it has too many connections: raise maxclients, or lower the pool size"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "it refuses to write because it cannot save to disk"
	case redis.HasErrorPrefix(err, "NOREPLICAS"):
		return "it refuses to write because it has too few replicas"
	case redis.HasErrorPrefix(err, "BUSY"):
		return "it is running a slow script"
	case errors.Is(err, redis.ErrPoolTimeout):
		return "all connections are in use: raise the pool size, or look for a slow Redis"
	case errors.Is(err, redis.ErrClosed):
		return "the store is closed"
	case errors.Is(err, io.EOF):
		return "it closed the connection"
	case errors.As(err, &operation) && operation.Op == "dial":
		return "cannot connect"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	default:
		return ""
	}
}

// refused tells whether Redis has certainly not executed a request that failed with err, and may execute it if it is sent
// again right away.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "NOSCRIPT") || redis.IsReadOnlyError(err)
}

// moved tells whether another node of the cluster is to be asked. The request was not executed.
func moved(err error) bool {
	if _, ok := redis.IsMovedError(err); ok {
		return true
	}
	_, ok := redis.IsAskError(err)
	return ok
}
