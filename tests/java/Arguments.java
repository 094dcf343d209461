// The arguments of one request: positional ones first, then `--name value` pairs.
// What nobody took is an error, so that a misspelt option cannot silently weaken a test.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

final class Arguments {
    private final List<String> positional = new ArrayList<>();
    private final Map<String, String> options = new HashMap<>();
    private int taken = 0;

    Arguments(List<String> fields) {
        for (int at = 0; at < fields.size(); at++) {
            String field = fields.get(at);
            if (!field.startsWith("--")) {
                positional.add(field);
            } else if (at + 1 < fields.size()) {
                options.put(field.substring(2), fields.get(++at));
            } else {
                throw new IllegalArgumentException(field + " needs a value");
            }
        }
    }

    String next(String name) {
        if (taken == positional.size()) {
            throw new IllegalArgumentException("missing " + name);
        }
        return positional.get(taken++);
    }

    int nextInt(String name) {
        return Integer.parseInt(next(name));
    }

    long nextLong(String name) {
        return Long.parseLong(next(name));
    }

    /** All that is left, as `key=value`; an empty value is allowed. */
    Map<String, String> pairs() {
        Map<String, String> pairs = new HashMap<>();
        while (taken < positional.size()) {
            String pair = positional.get(taken++);
            int equals = pair.indexOf('=');
            if (equals < 0) {
                throw new IllegalArgumentException(pair + " is not key=value");
            }
            pairs.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return pairs;
    }

    String option(String name, String otherwise) {
        String value = options.remove(name);
        return value == null ? otherwise : value;
    }

    int option(String name, int otherwise) {
        return Integer.parseInt(option(name, Integer.toString(otherwise)));
    }

    long option(String name, long otherwise) {
        return Long.parseLong(option(name, Long.toString(otherwise)));
    }

    boolean option(String name, boolean otherwise) {
        return Boolean.parseBoolean(option(name, Boolean.toString(otherwise)));
    }

    void done() {
        if (!options.isEmpty()) {
            throw new IllegalArgumentException("unknown options " + options.keySet());
        }
        if (taken < positional.size()) {
            throw new IllegalArgumentException("unknown arguments " + positional.subList(taken, positional.size()));
        }
    }
}
