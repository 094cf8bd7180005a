// Asio's own functions, once for all who include it (BOOST_ASIO_SEPARATE_COMPILATION).
#include "job/async/asio.hpp"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
